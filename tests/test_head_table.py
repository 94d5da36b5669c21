"""What a run knows about each head, as a tidy table."""

from __future__ import annotations

import math

import numpy as np

from headcount.heads import HeadLayout, HeadScores
from headcount.report.head_rows import COLUMNS, head_rows

LAYOUT = HeadLayout((2, 1))
SAMPLES = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0], [2.0, 2.0, 2.0]])


def scores(ranking: str = "attribution", **parameters: str) -> HeadScores:
    return HeadScores(LAYOUT, SAMPLES.mean(0), ranking, parameters, SAMPLES)


def test_one_row_for_each_head_and_score() -> None:
    rows = head_rows("m", "t", {"a": scores(), "b": scores()})
    assert all(tuple(row) == COLUMNS for row in rows)
    places = [(row["score"], row["layer"], row["head"]) for row in rows]
    assert places == [(s, *at) for s in "ab" for at in ((0, 0), (0, 1), (1, 0))]


def test_intervals_know_clusters_where_they_fit() -> None:
    alone = head_rows("m", "t", {"a": scores()})[0]
    assert alone["low"] < 2 < alone["high"]
    together = head_rows("m", "t", {"a": scores()}, clusters=[0, 0, 1, 1])[0]
    assert together["low"] == together["high"] == 2  # each cluster has the same mean
    other = head_rows("m", "t", {"a": scores()}, clusters=[0, 1])[0]  # those of other examples
    assert (other["low"], other["high"]) == (alone["low"], alone["high"])
    bare = HeadScores(LAYOUT, np.zeros(3), "random")
    assert math.isnan(head_rows("m", "t", {"a": bare})[0]["low"])


def test_what_was_measured_by_removal_is_an_effect_too() -> None:
    one = scores("patching", metric="logprob", ablation="corrupted")
    rows = head_rows("m", "t", {"attribution": scores(), "patching": one})
    ranked = [row for row in rows if row["score"] == "patching"]
    removed = [row for row in rows if row["score"] == "effect when removed"]
    assert [row["value"] for row in removed] == [-row["value"] for row in ranked]
    assert [row["low"] for row in removed] == [-row["high"] for row in ranked]
    assert {row["label"] for row in removed} == {"logprob, ablation corrupted"}
    assert len(rows) == 9


def test_roles_come_first_and_are_named() -> None:
    rows = head_rows("m", "t", {"a": scores()}, roles=["x", "y", "z"])
    assert [(row["score"], row["label"]) for row in rows[:3]] == [("role", n) for n in "xyz"]
