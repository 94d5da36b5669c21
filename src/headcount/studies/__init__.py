"""The studies: each describes what it measures, concludes from the results and saves one folder.

A study's module is imported only when the study is used, so that importing this file stays cheap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError, unknown
from headcount.registry import Registry, check_made, check_setting, join_settings
from headcount.studies.presets import Preset

if TYPE_CHECKING:
    from headcount.report.estimates import Drawn, Estimates, Models
    from headcount.studies.description import Description
    from headcount.value_table import ValueTable

# The published studies, by name, and their summaries; each has a folder of its name.
PUBLISHED = {
    "masked-heads": "TopK against RandomK masking on cognitive functions",
    "heads-kept": "explained effect against heads kept, in a dense and a sparse model",
    "edges-kept": "explained effect against attention edges kept, dense and sparse",
    "needle": "a needle task by length, with and without the heads that look at the needle",
    "head-roles": "learned causal gates: facilitating, irrelevant and interfering heads",
    "contrast": "contrastive gates: keep one form of a skill and forget another",
    "transfer": "heads ranked on one task, masked on another: whether they are of this task alone",
    "teamwork": "joint losses of heads against the sum of single ones: backup and overlap",
    "steering": "the direction of right answers, added at the best heads, against random ones",
    "token-insertion": "meaningless and meaningful inserts: accuracy and attention",
    "silent-heads": "heads that do nothing on an input, found by cheap scores of activity",
    "pruned": "smaller checkpoints: accuracy and loss against the share of the cache kept",
}

# The studies that `headcount demo --all` runs: one for each published main figure.
DEMO = ("masked-heads", "heads-kept", "head-roles", "token-insertion")


@dataclass(frozen=True, eq=False)
class StudyKind:
    """The functions and settings that make up a study.

    key        its name on the command line
    function   from models and a config to a description
    config     the dataclass of its settings
    presets    settings, or a `Preset`, by the name of the preset; "quick" is the default
    models     the models that are used by default
    one_model  its figure shows one model: several are run one after the other
    check      refuses a config that names what does not exist, before a model is loaded
    estimate   makes points, tables and claims from values and facts; without it, a result cannot
               be verified
    draw       draws the figures and says their captions, from values, facts, estimates and the
               facts of the models; without it, a result cannot be drawn again
    """

    key: str
    function: Callable[..., Description]
    config: type
    presets: Mapping[str, Mapping[str, Any] | Preset] = field(default_factory=lambda: {"quick": {}})
    models: tuple[str, ...] = ("smollm2-135m-q4",)
    check: Callable[[Any], object] = lambda config: None
    estimate: Callable[[ValueTable, Mapping[str, Any]], Estimates] | None = None
    one_model: bool = False
    draw: Callable[[ValueTable, Mapping[str, Any], Estimates, Models], Drawn] | None = None

    def describe(self, models: Sequence[Any], config: Any) -> Description:
        """What the study would measure on these models."""
        from headcount.studies.description import Description

        return check_made(f'the study "{self.key}"', self.function(models, config), Description)

    def preset(self, name: str) -> Preset:
        """The preset of this name."""
        if name not in self.presets:
            raise unknown(f"preset of {self.key}", name, self.presets)
        return Preset.of(self.presets[name])

    def configure(self, preset: str = "quick", **settings: Any) -> Any:
        """The config of a preset with some settings in place of its own; refuses unknown ones."""
        base = self.preset(preset)
        known = {item.name: item.default for item in dataclasses.fields(self.config)}
        chosen = {**base.settings, **settings}
        of_tasks = settings.get("task_settings") or {}
        for name in {"task_settings", "ranking_settings"} & base.settings.keys():
            chosen[name] = join_settings(base.settings[name], settings.get(name) or {})
        bound = {}
        for name, value in chosen.items():
            if isinstance(known.get(name), tuple) and isinstance(value, str | int | float):
                value = (value,)
            plain = tuple(value) if isinstance(value, list | range) else value
            bound[name] = check_setting(self.key, name, plain, known)
        config = self.config(**bound)
        _check_task_names(self.key, config, of_tasks)
        base.check_files(chosen.get("task_settings"))
        self.check(config)
        return config


def _check_task_names(study: str, config: Any, of_tasks: Mapping[str, Any]) -> None:
    """Refuse settings for a task that the study does not have."""
    names = [*map(str, getattr(config, "tasks", ())), *getattr(config, "functions", ())]
    for name, own in of_tasks.items():
        if isinstance(own, Mapping) and name not in names and "all" not in names:
            raise HeadcountError(
                f'Settings are given for the task "{name}", which this run of {study} does not '
                f"have (it has: {', '.join(names)})."
            )


@dataclass(frozen=True, eq=False)
class StudyEntry:
    """The name and summary of a study; a published study is imported when it is needed."""

    key: str
    name: str
    registered: StudyKind | None = None

    @property
    def kind(self) -> StudyKind:
        """The study, imported."""
        kind: StudyKind = self.registered or self._module("study").KIND
        return kind

    @property
    def config(self) -> type:
        """The dataclass of the study's settings; it is imported without torch."""
        config: type = self.registered.config if self.registered else self._module("config").Config
        return config

    @property
    def presets(self) -> dict[str, Preset]:
        """The study's presets by name; they are imported without torch."""
        own = self.registered.presets if self.registered else self._module("config").PRESETS
        return {name: Preset.of(preset) for name, preset in own.items()}

    def _module(self, name: str) -> Any:
        return import_module(f"headcount.studies.{self.key.replace('-', '_')}.{name}")


def _make(key: str, name: str, function: Callable[..., Description], **facts: Any) -> StudyEntry:
    return StudyEntry(key, name, StudyKind(key, function, **facts))


STUDIES: Registry[StudyEntry] = Registry(
    "study", _make, {key: StudyEntry(key, name) for key, name in PUBLISHED.items()}
)


def study_kind(name: str) -> StudyKind:
    """The study of this name, imported."""
    return STUDIES[name].kind


def study_config(name: str) -> type:
    """The dataclass of a study's settings; it is imported without torch."""
    return STUDIES[name].config
