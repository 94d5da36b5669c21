"""What every study will measure is counted beforehand, and a second run has nothing left."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import counting
from planted import plant
from planted_needle import plant_needle
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Lab, Store, run_study, wrap
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies import PUBLISHED
from headcount.studies.head_roles.panels import METRICS, WHOLE
from headcount.studies.heads_kept.panels import TEST
from headcount.studies.run import study_cost

# Studies of which every token is known beforehand, with the settings below. Gates that are not
# fitted yet may choose a head set twice, and timing them takes a few passes of its own.
EXACT = ("masked-heads", "heads-kept", "token-insertion")
# What these do depends on what the model can do, or on what is found: each is counted in its tests.
ADAPTIVE = ("contrast", "teamwork", "steering")
COUNTED = [study for study in PUBLISHED if study not in ADAPTIVE]


# So many heads that no two draws of some are the same.
WIDE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained or written for a study stays out of the user's cache."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))


def tiny() -> Model:
    module = tiny_model("llama", vocab_size=2000, max_position_embeddings=1024, **WIDE)
    return wrap(module, byte_level(), name="tiny")


def case(study: str, folder: Path) -> tuple[Model, dict[str, Any]]:
    """A model and settings with which the work is known beforehand."""
    if study == "masked-heads":
        return tiny(), {
            "functions": ("knowledge-recall", "math"),
            "rankings": ("random",),
            "counts": (4, 8),
            "seeds": 2,
            "n": 12,
            "similarity": "exact_match",
            "task_settings": {"shots": 1, "max_new_tokens": 2},
        }
    if study == "transfer":
        return tiny(), {
            "tasks": ("knowledge-recall", "math"),
            "counts": (8,),  # so many that both tasks share some
            "seeds": 2,
            "n": 12,
            "task_settings": {"shots": 1, "max_new_tokens": 2},
        }
    if study == "token-insertion":
        return tiny(), {
            "n": 6,
            "prompts": 0,
            "length": 12,
            "task_settings": {"shots": 1, "max_new_tokens": 4},
        }
    if study == "needle":
        few = {"lengths": (90, 140), "depths": (0.2, 0.8), "n": 8, "counts": (2, 4)}
        return plant_needle(["0.2", "1.0"], layers=2, heads=31).model, few
    if study == "edges-kept":
        from studies.test_heads_kept import write

        planted = plant(["0.1", "1.0"], ["1.2"], layers=2, heads=4, n=48)
        file = write(planted.task, folder / "planted.jsonl")
        few = {"seeds": 1, "n": 6, "ranked": 2, "counts": (1, 5, 20)}
        return planted.model, {"tasks": (file,), **few}
    if study == "silent-heads":
        from studies.test_heads_kept import write

        file = write(toy_task(40, targets=(1,)), folder / "toy.jsonl")
        many = dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 16)
        model = wrap(tiny_model("llama", **WIDE | many), toy_tokenizer(), name="wider")
        few = {"seeds": 1, "n": 8, "ranked": 8, "shares": (40, 60)}
        return model, {"tasks": (file,), "scores": ("relative-norm", "entropy"), **few}
    if study == "pruned":
        from studies.test_heads_kept import write

        file = write(toy_task(24, targets=(1,)), folder / "toy.jsonl")
        few = {"n": 4, "block": 8, "fitted": 3, "tested": 3, "draws": 2, "rounds": 2}
        model = wrap(tiny_model("llama", num_hidden_layers=8), toy_tokenizer(), name="deep")
        return model, {"tasks": (file,), "heal_steps": 2, "batch": 2, "rank": 2, **few}
    if study == "heads-kept":
        from studies.test_heads_kept import write

        planted = plant(["0.1", "1.0"], ["1.2"], layers=2, heads=4, n=48)
        file = write(planted.task, folder / "planted.jsonl")
        counts = {"counts": tuple(range(9)), "seeds": 2, "n": 16, "ranked": 8}
        return planted.model, {"tasks": (file,), "rankings": ("attribution",), **counts}
    model = wrap(tiny_model("llama", **WIDE), toy_tokenizer(), name="wide")
    fit = {"refit": True, "updates": 3, "batch": 8, "seeds": 2}
    return model, {"tasks": (toy_task(40),), "preset": "full", "counts": (5, 9), **fit}


def named_as_points(study: Study) -> list[dict[str, Any]]:
    """The kept values, with the names that the points have for what they are behind."""
    assert study.values is not None
    rows = [dict(row) for row in study.values.rows]
    if study.name in ("heads-kept", "edges-kept"):
        rows = [{**row, "ranking": row["order"]} for row in rows if row["split"] == TEST]
    if study.name == "head-roles":
        rows = [row for row in rows if row["base"] != WHOLE["base"]]
        rows = [{**row, "metric": METRICS[row["base"], "sum"]} for row in rows]
    return rows


def check_values(study: Study) -> None:
    """The mean of the kept values is that of each point that they are behind."""
    behind = defaultdict(list)
    values = named_as_points(study)
    names = [name for name in values[0] if name in study.rows[0] and name != "value"]
    for row in values:
        behind[tuple(row[name] for name in names)].append(row["value"])
    points = {tuple(row[name] for name in names): row for row in study.rows}
    assert len(points) == len(study.rows)
    for point, values in behind.items():
        # The points of heads-kept are shares of an effect, beside the mean of the metric.
        mean = points[point].get("mean_metric", points[point]["value"])
        assert mean == pytest.approx(np.mean(values), abs=1e-9)
        assert len(values) % points[point]["n"] == 0  # every draw has every example


@pytest.mark.parametrize("study", COUNTED)
def test_the_cost_is_what_is_measured(study: str, tmp_path: Path) -> None:
    model, settings = case(study, tmp_path)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        with counting() as ran:
            ahead = study_cost(study, model, lab=lab, **settings)
        assert not ran
        assert store.summary() == []
        assert lab.measured == {"value": 0, "text": 0}
        with counting() as ran:
            finished = run_study(study, model, lab=lab, **settings)
        if finished.values:
            check_values(finished)
        for thing in ("value", "text"):
            measured = lab.measured[thing]
            assert measured <= ahead.count(thing) <= 1.05 * measured
        by_kind: Counter[str] = Counter()
        for item in ahead.items:
            by_kind[item.kind] += item.tokens
        if study in EXACT:
            assert +by_kind == +ran
        again = study_cost(study, model, lab=lab, **settings)
        assert again.tokens == 0
        assert again.known > 0


def test_attention_profiles_are_counted_too(tmp_path: Path) -> None:
    model, settings = case("token-insertion", tmp_path)
    settings["prompts"] = 4
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        ahead = study_cost("token-insertion", model, lab=lab, **settings)
        assert any(item.quantity == "pass" for item in ahead.items)
        run_study("token-insertion", model, lab=lab, **settings)
        assert study_cost("token-insertion", model, lab=lab, **settings).tokens == 0


@pytest.mark.parametrize("study", PUBLISHED)
def test_settings_are_known_without_torch(study: str) -> None:
    """The command line shows the options of a study before anything heavy is imported."""
    module = f"headcount.studies.{study.replace('-', '_')}.config"
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
