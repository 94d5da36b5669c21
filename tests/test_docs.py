"""The documentation does what it says: its example files and its notebook run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from real import bundled
from registries import forget_new_names

import headcount

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))

# What each example prints, on the bundled model: not the numbers, which may move in the last digit.
SAID = {
    "add_task": r"<Task opposites: 10 examples, \d to rank, \d to test>: .* in (8\d|9\d|100)%\n",
    "add_ranking": r" +head +score .*\n( +\d+\.\d +\+\d+ +\+\d+ to \+\d+\n){10}… and .*\n",
    "add_metric": r"Reciprocal rank of the target: (0\.[89]|1\.0)\d; without four heads 0\.\d\d\n",
    "export_adapters": r"(\S+: next is ' \w+'; differs from the gates by \de[-+]0[067]\n){3}",
    "coming_from": r"Without head 20\.0: -.*\nBest heads:( \d+\.\d){8}\nseries .*\n(\w+ .*\n){12}",
    "cache_budget": r"series .* cache kept\n(TopK .*%\n){3}The .*\n(patterns/.*\n){2}",
    "judge_list": r"(top 8 minus 8 \w+ heads: [+-]\d\.\d\d \[[+-]\d\.\d\d, [+-]\d\.\d\d\]\n){2}",
    "run_benchmark": r"top +0  acc [01]\.\d\d  \[.*\]\n(\w+ +(0|16)  acc [01]\.\d\d  \[.*\]\n){5}",
    "add_study": r"<Study best-and-worst · smollm2-135m-q4: 1 claim \(1 supported\), 4.*\n.*\n",
}


@pytest.mark.real
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_what_it_should(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if path.stem == "run_benchmark":
        pytest.importorskip("lm_eval", reason="pip install 'headcount[lm-eval]'")
    monkeypatch.setattr(headcount, "load_model", bundled)
    monkeypatch.chdir(tmp_path)
    forget_new_names(monkeypatch)
    runpy.run_path(str(path), run_name="__main__")
    assert re.fullmatch(SAID[path.stem], capsys.readouterr().out)


def test_examples_are_short_and_all_are_shown() -> None:
    assert {path.stem for path in EXAMPLES} == set(SAID)
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path
        assert f"examples/{path.name}" in pages


@pytest.mark.real
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled()  # in the cache, before the kernel asks for it
    # The kernel's folder is another one, and its headcount must be this one.
    monkeypatch.setenv("PYTHONPATH", str(Path(headcount.__path__[0]).parent))
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kept = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for new, old in zip(cells, kept, strict=True):  # what the page shows is what one gets
        assert kinds(new) == kinds(old)


def kinds(cell: nbformat.NotebookNode) -> list[str]:
    """The kinds of output of a cell: texts that come in pieces are one, warnings are left out."""
    said = [output for output in cell.outputs if output.get("name") != "stderr"]
    found = [" ".join(sorted(one["data"])) if "data" in one else one.output_type for one in said]
    return [kind for kind, _ in groupby(found)]


def test_notebooks_are_small_and_hold_no_traces_of_a_machine() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 150_000
        assert not re.search(r"/(home|tmp|root|work)/|\\r", text)


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. auto\w+:: headcount\.(\w+)$", page, re.MULTILINE)
    assert set(headcount._HOMES) <= set(shown)
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("name", sorted(headcount._HOMES))
def test_every_public_name_has_an_example(name: str) -> None:
    """In its own docstring, or in that of one of its methods; the doctests run them all."""
    public = getattr(headcount, name)
    members = vars(public).values() if isinstance(public, type) else ()
    assert any(">>>" in (getattr(one, "__doc__", None) or "") for one in (public, *members))


@pytest.mark.parametrize("name", ["write_settings.py", "write_findings.py"])
def test_pages_have_the_settings_and_findings_of_their_studies(name: str) -> None:
    script = DOCS.parent / "scripts" / name
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run scripts/{name}"
