"""What all tests share: shape checks over the whole package, one thread, tiny models built once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache

# Two threads that wait for each other on a busy machine are twenty times slower than one. Set
# before torch is imported, and so that programs that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests measure; what they keep, they keep in stores of their own.
os.environ["HEADCOUNT_STORE"] = "off"
os.environ["HEADCOUNT_PROOFS"] = "off"

import matplotlib
import pytest
import torch
from hypothesis import settings
from shapes import check_shapes_of
from tiny import tiny_model
from transformers import PreTrainedModel

# Before anything imports headcount, and after torch, which the metrics do not import by themselves:
# all functions and dataclasses of the package check the shapes of the arrays they are given.
check_shapes_of("headcount")

torch.set_num_threads(1)
matplotlib.use("agg")  # pictures open no window

# The first example that needs a kernel takes its time; the same examples in every run.
settings.register_profile("headcount", deadline=None, derandomize=True)
settings.load_profile("headcount")


@pytest.fixture(autouse=True)
def _the_compiler_is_left_as_it_was() -> Iterator[None]:
    """Passes under gates hold the compiler back, and only for as long as they last."""
    yield
    assert torch._dynamo.eval_frame._stance.stance == "default"


@pytest.fixture(scope="session")
def tiny() -> Callable[[str], PreTrainedModel]:
    """Tiny models by type, built once: for tests that leave them as they are."""
    return cache(tiny_model)
