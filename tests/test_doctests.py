"""Every example in a docstring runs and says what it shows; those on the bundled model are real."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from real import bundled
from registries import forget_new_names

import headcount
from headcount.models.bundled import BUNDLED

SOURCE = Path(headcount.__path__[0])


def docstrings() -> Iterator[tuple[str, str, str]]:
    """Module, name and text of all docstrings with examples, from the source.

    Decorators and type checks hide functions from doctest's own search.
    """
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from _below(tree, module.removesuffix(".__init__"), "")


def _below(node: Any, module: str, name: str) -> Iterator[tuple[str, str, str]]:
    text = ast.get_docstring(node) or ""
    if ">>>" in text:
        yield module, name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _below(child, module, f"{name}.{child.name}")


EXAMPLES = [
    pytest.param(*found, id=f"{found[0]}{found[1]}", marks=[pytest.mark.real] * real)
    for found in docstrings()
    for real in ["smollm2-135m-q4" in found[2] and "load_model" in found[2]]
]


@pytest.mark.parametrize(("module", "name", "text"), EXAMPLES)
def test_example(
    module: str,
    name: str,
    text: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_new_names(monkeypatch)
    load = headcount.load_model
    monkeypatch.setattr(
        headcount, "load_model", lambda spec: bundled(spec) if spec in BUNDLED else load(spec)
    )
    known = {**vars(import_module(module)), "getfixture": request.getfixturevalue}
    example = doctest.DocTestParser().get_doctest(text, known, f"{module}{name}", module, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(said)


def test_the_public_names_teach_by_example() -> None:
    """Functions of the public list have examples; values and their classes may."""
    taught = {(module, name.removeprefix(".").split(".")[0]) for module, name, _ in docstrings()}
    functions = [name for name in headcount._HOMES if name[0].islower()]
    assert [name for name in functions if (headcount._HOMES[name], name) not in taught] == []
