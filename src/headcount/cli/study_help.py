"""What the help of `headcount run STUDY` says about single studies."""

from __future__ import annotations

STUDY_EXAMPLES = {
    "masked-heads": (
        "--preset full --model Qwen/Qwen3-0.6B",
        "--ranking attribution probe --counts 16 32 64 128",
    ),
    "heads-kept": ("--model DENSE --model SPARSE --tasks ioi",),
    "edges-kept": ("--model DENSE --model SPARSE --tasks ioi --per prompt",),
    "transfer": (
        "--tasks retrieval math my-examples.jsonl --counts 4 8",
        "--tasks all --metric accuracy",
    ),
    "needle": ("--lengths 512 1024 2048 --counts 8 16",),
    "head-roles": ("--model A --model B --refit",),
    "contrast": ("--left-out antonym --keep in-context --seeds 5",),
    "token-insertion": ("--sweep length",),
    "silent-heads": ("--tasks common-sense inference --shares 5 13 30",),
    "pruned": ("--text text.txt --heal-steps 100", "--keep-groups 2 --draws 5"),
}
STUDY_MODELS = {  # how often --model may be given, and its default
    "masked-heads": " (smollm2-135m-q4)",
    "contrast": " (smollm2-135m-q4)",
    "silent-heads": " (smollm2-135m-q4)",
    "heads-kept": "; twice for a dense and a sparse one (smollm2-135m-q4 and its sparse version)",
    "needle": " (smollm2-135m-q4)",
    "pruned": " (smollm2-135m-q4)",
    "edges-kept": "; twice for a dense and a sparse one (smollm2-135m-q4 and its sparse version)",
}
