"""Metrics on logits that are made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headcount import HeadcountError
from headcount.metrics import METRICS, Metric, Scored, get_metric, logit_metrics

LOG = math.log

# Three words, probabilities as in the comments.
FIRST = [LOG(0.5), LOG(0.3), LOG(0.2)]
SECOND = [LOG(0.1), LOG(0.8), LOG(0.1)]


def scored(
    logits: list[list[list[float]]], targets: list[list[int]], foils: list[list[int]] | None = None
) -> Scored:
    wrong = torch.tensor(foils) if foils else torch.zeros(len(targets), 0, dtype=torch.long)
    return Scored(torch.tensor(logits), torch.tensor(targets), wrong)


def value(metric: str, *args: object) -> list[float]:
    return METRICS[metric].function(scored(*args)).tolist()  # type: ignore[arg-type]


def test_log_probability_is_that_of_the_whole_target() -> None:
    both = [[FIRST, SECOND], [SECOND, FIRST]]
    expected = [LOG(0.5) + LOG(0.8), LOG(0.1) + LOG(0.2)]
    assert value("logprob", both, [[0, 1], [2, 2]]) == pytest.approx(expected, abs=1e-6)
    half = [e / 2 for e in expected]
    assert value("logprob_per_token", both, [[0, 1], [2, 2]]) == pytest.approx(half, abs=1e-6)


def test_accuracy_needs_every_token_of_the_target() -> None:
    both = [[FIRST, SECOND]] * 4
    assert value("accuracy", both, [[0, 1], [0, 0], [1, 1], [2, 2]]) == [1, 0, 0, 0]


def test_the_margin_is_over_the_strongest_foil_at_the_first_token() -> None:
    both = [[FIRST, SECOND]] * 2
    margins = value("logit_difference", both, [[0, 0], [1, 1]], [[1, 2], [2, 0]])
    assert margins == pytest.approx([LOG(0.5 / 0.3), LOG(0.3 / 0.5)])
    assert value("first_token_choice", both, [[0, 0], [1, 1]], [[1, 2], [2, 0]]) == [1, 0]


def many(
    metric: str, targets: list[list[int]], foils: list[list[int]], also: list[list[int]]
) -> list[float]:
    case = Scored(
        torch.tensor([[FIRST]] * len(targets)),
        torch.tensor(targets),
        torch.tensor(foils),
        torch.tensor(also),
    )
    return METRICS[metric].function(case).tolist()


def test_masses_are_sums_over_right_and_wrong_answers() -> None:
    assert value("mass_difference", [[FIRST, SECOND]], [[0, 0]], [[1, 2]]) == pytest.approx([0.0])
    assert value("mass_difference", [[FIRST, SECOND]], [[1, 0]], [[2]]) == pytest.approx([0.1])
    # Rows with fewer answers are filled up with -1, which is no answer.
    found = many("mass_difference", [[2], [1]], [[0, -1], [2, 0]], [[1, -1], [-1, -1]])
    assert found == pytest.approx([0.5 - 0.5, 0.3 - 0.7])


def test_the_strongest_right_answer_counts() -> None:
    margins = many("logit_difference", [[2], [2]], [[0, -1], [0, -1]], [[1], [-1]])
    assert margins == pytest.approx([LOG(0.3 / 0.5), LOG(0.2 / 0.5)])
    assert many("first_token_choice", [[2], [1]], [[1, -1], [0, -1]], [[0], [-1]]) == [1, 0]


def test_a_tie_is_no_choice() -> None:
    assert value("first_token_choice", [[[1.0, 1.0, 0.0]]], [[0]], [[1]]) == [0]


def test_not_a_number_is_neither_right_nor_wrong() -> None:
    """Otherwise a broken model would have an accuracy of 0, which looks like a result."""
    logits = [[[math.nan, 1.0, 0.0]], [[0.0, 1.0, 0.0]]]
    for metric in [metric.key for metric in logit_metrics()]:
        broken, whole = value(metric, logits, [[1], [1]], [[0], [0]])
        assert math.isnan(broken), metric
        assert math.isfinite(whole), metric


def test_words_that_a_model_rules_out_do_no_harm() -> None:
    """Some models give minus infinity to ids that are no words."""
    logits = [[[1.0, 2.0, -math.inf]]]
    for metric in [metric.key for metric in logit_metrics()]:
        assert math.isfinite(value(metric, logits, [[1]], [[0]])[0]), metric


def test_half_precision_is_widened_before_the_sum() -> None:
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(0, 4, (3, 2, 1000)), dtype=torch.bfloat16)
    targets = torch.tensor(rng.integers(0, 1000, (3, 2)))
    narrow = Scored(logits, targets, torch.zeros(3, 0, dtype=torch.long))
    wide = Scored(logits.double(), targets, narrow.foils)
    found = METRICS["logprob"].function(narrow)
    assert found.dtype == torch.float32
    expected = wide.logits.log_softmax(-1).gather(-1, targets[..., None]).sum((1, 2))
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)


@given(
    shift=st.floats(-20, 20),
    logits=st.lists(st.floats(-10, 10), min_size=4, max_size=4),
    target=st.integers(0, 3),
)
def test_only_differences_between_logits_count(
    shift: float, logits: list[float], target: int
) -> None:
    foil = (target + 1) % 4
    moved = [[[logit + shift for logit in logits]]]
    for metric in ("logprob", "logprob_per_token", "logit_difference"):
        before, after = (value(metric, rows, [[target]], [[foil]]) for rows in ([[logits]], moved))
        assert before == pytest.approx(after, abs=1e-4)
    assert value("logprob", [[logits]], [[target]])[0] <= 1e-6


@given(logits=st.lists(st.floats(-10, 10), min_size=4, max_size=4), target=st.integers(0, 3))
def test_an_accurate_answer_is_also_the_right_choice(logits: list[float], target: int) -> None:
    foils = [[word for word in range(4) if word != target]]
    accurate = value("accuracy", [[logits]], [[target]])[0]
    chosen = value("first_token_choice", [[logits]], [[target]], foils)[0]
    ties = sum(logit == max(logits) for logit in np.float32(logits)) > 1
    assert accurate == chosen or ties


def test_metrics_that_can_be_differentiated_say_so() -> None:
    for metric in logit_metrics():
        case = scored([[FIRST, SECOND]], [[0, 1]], [[1]])
        case.logits.requires_grad_()
        values = metric.function(case)
        if metric.combine is not None:
            values = metric.combine(values[:, None], values[:, None])
        assert values.requires_grad == metric.differentiable
        assert metric.binary <= (not metric.differentiable)


def test_metrics_by_name() -> None:
    assert list(METRICS) == [metric.key for metric in METRICS.values()]
    assert get_metric("choice") is METRICS["choice"]
    mine = Metric("mine", "Mine", METRICS["logprob"].function)
    assert get_metric(mine) is mine
    with pytest.raises(HeadcountError, match=r'"logpob".*Did you mean "logprob"\?'):
        get_metric("logpob")
