"""The shape checks that all other tests rely on are there, and check shapes alone."""

import jaxtyping
import numpy as np
import pytest
import torch

from headcount import HeadScores
from headcount.heads import HeadLayout
from headcount.metrics import Scored, get_metric
from headcount.models.gate import gating
from headcount.models.slices import rows_differ


def test_functions_check_their_arguments() -> None:
    assert not rows_differ(torch.ones(2, 3, 4), 0.1)
    with pytest.raises(jaxtyping.TypeCheckError):
        rows_differ(torch.ones(2, 3), 0.1)
    with pytest.raises(jaxtyping.TypeCheckError), gating(torch.nn.Linear(1, 1), [], torch.ones(2)):
        pass


def test_dataclasses_check_their_fields() -> None:
    HeadScores(HeadLayout((2,)), np.zeros(2), "by hand")
    with pytest.raises(jaxtyping.TypeCheckError):
        HeadScores(HeadLayout((2,)), np.zeros((1, 2)), "by hand")


def test_metrics_are_checked_although_they_do_not_import_torch() -> None:
    logits, none = torch.zeros(2, 3, 5), torch.zeros(2, 0, dtype=torch.long)
    Scored(logits, torch.zeros(2, 3, dtype=torch.long), none)
    with pytest.raises(jaxtyping.TypeCheckError):
        Scored(logits, torch.zeros(2, 4, dtype=torch.long), none)


def test_other_types_are_left_to_the_type_checker() -> None:
    with pytest.raises(AttributeError):
        get_metric("logprob").function(None)
