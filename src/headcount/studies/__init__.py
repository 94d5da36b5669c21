"""The studies: each describes what it measures, concludes from the results and saves one folder.

A study's module is imported only when the study is used, so that importing this file stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount.errors import unknown

if TYPE_CHECKING:
    from headcount.studies.description import StudyKind

# The subject of each study, by its name; the folder of that name holds its modules.
STUDIES = {
    "masked-heads": "TopK against RandomK masking on cognitive functions",
    "heads-kept": "explained effect against heads kept, in a dense and a sparse model",
    "head-roles": "learned causal gates: facilitating, irrelevant and interfering heads",
    "token-insertion": "meaningless and meaningful inserts: accuracy and attention",
}


_KINDS: dict[str, StudyKind] = {}  # studies that users registered


def register_study(kind: StudyKind, summary: str) -> None:
    """Register a user's study under its name."""
    if kind.key in STUDIES:
        raise ValueError(f"study {kind.key!r} is registered twice")
    STUDIES[kind.key], _KINDS[kind.key] = summary, kind


def study_kind(name: str) -> StudyKind:
    """Import the study of this name."""
    kind: StudyKind = _KINDS[name] if name in _KINDS else _part(name, "study").KIND
    return kind


def study_config(name: str) -> type:
    """The dataclass of a study's settings; this does not import the study itself."""
    config: type = _KINDS[name].config if name in _KINDS else _part(name, "config").Config
    return config


def _part(name: str, part: str) -> Any:
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return import_module(f"headcount.studies.{name.replace('-', '_')}.{part}")
