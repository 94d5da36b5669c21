"""Kinds of models of other rooms: known by name, and imported only when one is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headcount.errors import HeadcountError
from headcount.models.kinds import KINDS
from headcount.models.load import load_pretrained
from headcount.sparse.checkpoint import FACTS, SHIPPED


def test_nothing_of_a_kind_is_imported_before_it_is_asked_for() -> None:
    code = "import sys, headcount; print('torch' in sys.modules);"
    code += "import headcount.models.export; print('headcount.sparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_names_and_folders_of_sparse_models(tmp_path: Path) -> None:
    (kind,) = KINDS
    assert (kind.prefix, kind.marker) == ("sparse:", FACTS)
    shipped = SHIPPED / "smollm2-135m-q4"
    assert kind.folder_of("sparse:smollm2-135m-q4") == kind.folder_of(str(shipped)) == shipped
    assert kind.folder_of("smollm2-135m-q4") is None
    assert kind.folder_of(str(tmp_path)) is None


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HeadcountError, match=r'No sparse model "smolm2-135m".*Did you mean'):
        load_pretrained("sparse:smolm2-135m")
