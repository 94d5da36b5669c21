"""The plan of the house holds: rooms import only from rooms before them, and nothing grows too big.

ARCHITECTURE.md tells what each room is for.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headcount"
# Each room imports only from those before it: also inside functions, and for type checkers.
ROOMS = (
    *("figures", "errors", "system", "stats", "value_table", "heads", "registry", "claims"),
    *("tasks", "metrics", "store", "models", "sparse", "engine", "lab", "rankings", "curves"),
    *("report", "studies", "decorators", "explorer", "integrations", "cli"),
)
LINES, FILE, MEDIAN, FUNCTION, PARAMETERS = 60_000, 450, 150, 60, 10


@cache
def sources() -> dict[Path, ast.Module]:
    files = sorted(SOURCE.rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and room of every import of ours, wherever it stands."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = [node.module or ""]
            if node.module == "headcount":
                names = [f"headcount.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "headcount" and rest.split(".")[0] in ROOMS:
                yield node.lineno, rest.split(".")[0]


def test_every_top_level_entry_is_in_the_plan() -> None:
    entries = {room_of(path) for path in sources()} - {"__init__"}
    assert entries <= set(ROOMS)


def test_rooms_import_only_from_rooms_before_them() -> None:
    wrong = []
    for path, tree in sources().items():
        own = room_of(path)
        if own == "__init__":
            continue
        for line, room in imported(tree):
            before = ROOMS.index(room) < ROOMS.index(own)
            if not (room == own or before):
                wrong.append(f"{name_of(path)}:{line} ({own}) imports {room}")
    assert wrong == []


def test_figures_import_nothing_of_ours_but_figures() -> None:
    rooms = {
        room for p, t in sources().items() if room_of(p) == "figures" for _, room in imported(t)
    }
    assert rooms <= {"figures"}


def test_a_wrong_edge_is_seen() -> None:
    lazily = "def f():\n    from headcount.cli.run import run\n    import headcount.models.gate"
    assert sorted(room for _, room in imported(ast.parse(lazily))) == ["cli", "models"]


def test_no_class_name_has_two_meanings() -> None:
    homes = defaultdict(list)
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name_of(path))
    # A study's settings are its `Config`, in the file of that name.
    shared = {name: files for name, files in homes.items() if len(files) > 1 and name != "Config"}
    assert shared == {}


def test_files_are_short() -> None:
    lengths = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in sources()}
    assert {name: length for name, length in lengths.items() if length > FILE} == {}
    assert median(lengths.values()) <= MEDIAN
    assert sum(lengths.values()) <= LINES


@pytest.mark.parametrize("limit", ["lines", "parameters"])
def test_functions_are_short(limit: str) -> None:
    long = []
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                several = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
                several += (given.vararg is not None) + (given.kwarg is not None)
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                kernel = path.name == "triton_kernels.py"  # a kernel takes every stride apart
                if kernel and limit == "parameters":
                    continue
                if (lines > FUNCTION) if limit == "lines" else (several > PARAMETERS):
                    long.append(f"{name_of(path)}:{node.lineno} {node.name} {lines} {several}")
    assert long == []
