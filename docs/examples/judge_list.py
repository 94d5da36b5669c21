"""Test somebody else's list: does masking its heads cost more than masking random ones?"""

from pathlib import Path

from headcount import curve, load_model, make_task
from headcount.heads import read_list
from headcount.rankings import fit_list

# A list as QRHead writes them: LAYER-HEAD, best first, and the model that it is for.
Path("retrieval.yaml").write_text(
    'attn_head_set: "18-6,23-7,23-2,17-3,23-1,17-4,22-7,21-8"\n'
    'model_name_or_path: "smollm2-135m-q4"\n'
)

model = load_model("smollm2-135m-q4")
task = make_task("ioi", model.tokenizer, n=32)
scores = fit_list(read_list("retrieval.yaml"), model)  # refuses a list of another model
result = curve(model, task, scores, metric="logit_difference", counts=[0, 8], seeds=5)
for control in ("random", "matched"):
    gap = result.difference("top", control, 8)
    print(f"top 8 minus 8 {control} heads: {gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]")
