"""The study `edges-kept`: on planted circuits, each needed head of which needs one edge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from figures.in_print import check_print
from planted import plant
from studies.test_heads_kept import write
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, wrap
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies.edges_kept.study import KIND, edge_counts
from headcount.studies.verify import verify


def run(models: Sequence[Model], **settings: Any) -> Study:
    description = KIND.describe(models, KIND.configure("full", **settings))
    return description.carry_out(Lab(store=None, progress=False))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    one, other = plant(["0.1", "1.3", "2.0"], n=64), plant(["0.0", "2.2"], ["1.1"], n=64, seed=1)
    file = write(one.task, tmp_path_factory.mktemp("task") / "planted.jsonl")
    models = [
        wrap(plant.model.module, plant.model.tokenizer, name=name)
        for plant, name in ((one, "three"), (other, "two"))
    ]
    counts = tuple(range(1, 9))
    return run(models, tasks=(file,), rankings=("attribution",), n=24, ranked=4, counts=counts)


def rows(study: Study, title: str, **about: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in study.tables[title] if about.items() <= row.items()]


def test_each_needed_head_needs_one_edge(study: Study) -> None:
    for model, edges in (("three", 3), ("two", 2)):
        (found,) = rows(study, "Edges needed", model=model, order="attribution, absolute")
        assert found["edges"] == edges
        assert found["of"] > 100
        assert found["reached"]
    ratios = rows(study, "Ratio by threshold", order="attribution, absolute", threshold=0.9)
    assert [row["ratio"] for row in ratios] == pytest.approx([1.5])


def test_a_signed_order_passes_one_where_edges_interfere(study: Study) -> None:
    (signed,) = rows(study, "Edges needed", model="two", order="attribution")
    (absolute,) = rows(study, "Edges needed", model="two", order="attribution, absolute")
    assert signed["highest"] > 1.05
    assert absolute["two-sided"] == 3  # the interfering edge comes third
    assert signed["two-sided"] > 8  # … and here long after the eight that were measured


def test_ranked_edges_are_nearer_than_random_ones(study: Study) -> None:
    better = study.claims[0]
    assert better.claim.startswith("edges kept by attribution, absolute are nearer")
    assert "on the log axis" in better.claim
    assert better.verdict == "supported"
    assert study.claims[-1].verdict == "not tested"  # a task of the user's own was not published


def test_the_result_is_a_folder_that_can_be_verified(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    assert {"figure", "orders", "ratios"} == set(study.figures) - {"figure-column"}
    for figure in study.figures.values():
        check_print(figure)
    found = verify(tmp_path)
    assert found.differences == ()
    assert found.numbers > 100
    axes = study.figures["figure"].axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "Number of Edges Kept"


def test_bad_settings_are_refused_in_a_sentence(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    for settings, words in (
        ({"rankings": ("patching",)}, 'no ranking of edges "patching"'),
        ({"rankings": ()}, "one task and one ranking"),
        ({"n": 1}, "n of at least 2"),
        ({"per": "head"}, "value of per"),
        ({"counts": (0,)}, "whole numbers above 0"),
        ({"threshold": 2.0}, "between 0 and 1"),
    ):
        with pytest.raises(HeadcountError, match=words):
            KIND.configure("quick", **settings)
    bare = write(toy_task(24, templates=False, targets=(1,)), tmp_path / "bare.jsonl")
    with pytest.raises(HeadcountError, match=r"no edges align: .*per=prompt"):
        run([model], tasks=(bare,), n=4)


def test_counts_are_dense_on_a_log_axis() -> None:
    assert edge_counts(1500) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
