"""Presets: settings of a study under one name, and the models and files that go with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.report.study import Study


@dataclass(frozen=True)
class Preset:
    """A preset, as data.

    settings  settings of the config; those of tasks are for all tasks, or under a task's name
    models    the models that it is for; without any, those of the study
    loading   how models are loaded (dtype, …): for all models, or under a model's name
    local     files and folders that it expects in the current folder, and how to get each
    inferred  what the paper does not print, so that we chose it (†): a sentence for each
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    loading: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, str] = field(default_factory=dict)
    inferred: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any] | Preset) -> Preset:
        """The preset itself, or one of plain settings."""
        return settings if isinstance(settings, Preset) else cls(settings)

    def check_files(self, task_settings: Mapping[str, Any] | None) -> None:
        """Refuse files of data that the preset expects and that are not there."""
        self._check(_texts(task_settings or {}))

    def check_models(self, names: Sequence[str]) -> None:
        """Refuse folders of models that the preset expects and that are not there."""
        self._check(names)

    def told(self, study: Study, name: str) -> Study:
        """The study with the name of the preset among its settings and inferences in its notes."""
        settings = {**study.settings, "preset": name}
        notes = [*study.notes, *(f"† {text}" for text in self.inferred)]
        return replace(study, settings=settings, notes=notes)

    def _check(self, names: Sequence[str] | Iterator[str]) -> None:
        for name in names:
            if name in self.local and not Path(name).exists():
                raise HeadcountError(f"There is no {name} here: {self.local[name]}.")


def _texts(settings: Mapping[str, Any]) -> Iterator[str]:
    for value in settings.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str):
            yield value
