"""Task files of lm-eval, with their documents beside them: no network is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Documents = Sequence[Mapping[str, Any]]


def write_task(
    folder: Path, name: str, test: Documents, training: Documents = (), **how: Any
) -> None:
    """Write NAME.yaml and its documents into the folder."""
    splits = {"test": test, **({"train": training} if training else {})}
    files = {}
    for split, documents in splits.items():
        path = folder / f"{name}-{split}.jsonl"
        path.write_text("".join(json.dumps(document) + "\n" for document in documents))
        files[split] = str(path)
    kwargs = {"data_files": files, "cache_dir": str(folder / "cache")}
    task = {"task": name, "dataset_path": "json", "dataset_kwargs": kwargs, "test_split": "test"}
    task |= {"training_split": "train"} if training else {}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**task, **how}))


def choosing(folder: Path, name: str, test: Documents, **how: Any) -> None:
    """A benchmark of choices, from documents with text, choices and label."""
    own: dict[str, Any] = {
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "label",
        "metric_list": [{"metric": metric} for metric in ("acc", "acc_norm")],
    }
    write_task(folder, name, test, **(own | how))


def writing(folder: Path, name: str, test: Documents, *, decoding: Any = None, **how: Any) -> None:
    """A benchmark of written answers, from documents with text, choices and label."""
    own: dict[str, Any] = {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{choices[label]}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 4, **(decoding or {})},
        "metric_list": [{"metric": "exact_match"}],
    }
    write_task(folder, name, test, **(own | how))
