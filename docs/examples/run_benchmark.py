"""A benchmark of lm-eval under head sets: ranked on its training documents, then tested.

The benchmark is a task file of lm-eval's own kind, beside its documents. To run one that comes with
lm-eval, such as arc_easy, give its name.
"""

import json
import tempfile
from pathlib import Path

from headcount import load_model, make_task, rank
from headcount.integrations.lm_eval import benchmarks

CAPITALS = """France Paris, Italy Rome, Spain Madrid, Greece Athens, Japan Tokyo, Egypt Cairo,
Peru Lima, Russia Moscow, Germany Berlin, Austria Vienna, Poland Warsaw, Portugal Lisbon,
Ireland Dublin, Iran Tehran"""
TASK = """
task: capitals
dataset_path: json
dataset_kwargs: {data_files: {train: FOLDER/train.jsonl, test: FOLDER/test.jsonl}}
training_split: train
test_split: test
output_type: multiple_choice
doc_to_text: "The capital of {{land}} is"
doc_to_choice: "{{cities}}"
doc_to_target: right
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


def write_task(folder: Path) -> None:
    """The task file, and a line of JSON for each question, with four cities to choose from."""
    pairs = [pair.split() for pair in CAPITALS.split(",")]
    rows = []
    for n, (land, _) in enumerate(pairs):
        near = [pairs[(n + step) % len(pairs)][1] for step in (0, 3, 5, 8)]
        rows.append({"land": land, "cities": sorted(near), "right": sorted(near).index(near[0])})
    for split, some in (("train", rows[:6]), ("test", rows[6:])):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, some)))
    (folder / "capitals.yaml").write_text(TASK.replace("FOLDER", str(folder)))


if __name__ == "__main__":
    model = load_model("smollm2-135m-q4")
    with tempfile.TemporaryDirectory() as folder:
        write_task(Path(folder))
        where = {"include_path": folder}
        task = make_task("lm-eval", model, benchmark="capitals", docs="training", **where)
        scores = rank(model, task, "attribution", metric="logprob_difference")
        study = benchmarks(model, ["capitals"], scores, counts=[16], seeds=2, **where)
    for row in study.rows:
        print(f"{row['series']:8}{row['count']:3}  {row['metric']} {row['value']:.2f}", end="")
        print(f"  [{row['low']:.2f}, {row['high']:.2f}]")
