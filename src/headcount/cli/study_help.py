"""What the help of `headcount run STUDY` says about single studies."""

from __future__ import annotations

from textwrap import fill

from headcount.studies.presets import Preset

STUDY_EXAMPLES = {
    "masked-heads": (
        "--preset full --model Qwen/Qwen3-0.6B",
        "--preset paper --dry-run",
        "--ranking attribution probe --counts 16 32 64 128",
    ),
    "heads-kept": (
        "--model DENSE --model SPARSE --tasks ioi",
        "--model A --model B --model C --model D --pairs ioi=1,2 docstring=3,4",
    ),
    "edges-kept": ("--model DENSE --model SPARSE --tasks ioi --per prompt",),
    "transfer": (
        "--tasks retrieval math my-examples.jsonl --counts 4 8",
        "--tasks all --metric accuracy",
    ),
    "teamwork": ("--tasks ioi --top 20", "--tasks my-prompts.json --ablation zero"),
    "steering": ("--tasks math --alphas -5 -2 2 5 --top 16",),
    "needle": ("--lengths 512 1024 2048 --counts 8 16",),
    "head-roles": (
        "--model A --model B --refit",
        "--tasks commonsense-qa gsm8k --set commonsense-qa:path=A.jsonl gsm8k:path=B.jsonl",
    ),
    "contrast": ("--left-out antonym --keep in-context --seeds 5",),
    "token-insertion": ("--sweep length", "--preset paper --dry-run"),
    "silent-heads": ("--tasks common-sense inference --shares 5 13 30",),
}
STUDY_MODELS = {  # how often --model may be given, and its default
    "masked-heads": " (smollm2-135m-q4)",
    "contrast": " (smollm2-135m-q4)",
    "silent-heads": " (smollm2-135m-q4)",
    "transfer": " (smollm2-135m-q4)",
    "teamwork": " (smollm2-135m-q4)",
    "steering": " (smollm2-135m-q4)",
    "heads-kept": "; twice for a dense and a sparse one (smollm2-135m-q4 and its sparse version)",
    "needle": " (smollm2-135m-q4)",
    "edges-kept": "; twice for a dense and a sparse one (smollm2-135m-q4 and its sparse version)",
}


def preset_text(name: str, preset: Preset) -> str:
    """What a preset is made for, as the help of its study says it."""
    lines = [f"preset {name}:", f"models: {', '.join(preset.models)}"]
    lines += [f"{path}: {how}" for path, how in preset.local.items()]
    lines += [f"† {text}" for text in preset.inferred]
    shown = [fill(line, 98, initial_indent="  ", subsequent_indent="    ") for line in lines[1:]]
    return "\n".join([lines[0], *shown])
