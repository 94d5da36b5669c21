"""Study `contrast`: keep one skill, forget another, and see it on a third.

After the contrastive gates of "Causal Head Gating" (Nam et al., NeurIPS 2025), which separate
instruction following from learning in context over six small tasks, leaving one task out. For each
skill and each form: fit gates on all other skills that keep this form and forget the other one;
measure both forms of the skill that was left out, under the learned gates, under the head set of
the gates that are shut, and with as many random heads off.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from headcount.models.model import Model
from headcount.rankings.causal_gates.contrast import ContrastiveGates
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.contrast.config import PRESETS, Config
from headcount.studies.contrast.estimates import estimate
from headcount.studies.contrast.figure import draw
from headcount.studies.contrast.fits import (
    WHOLE,
    AbleRequest,
    Contrasted,
    ContrastRequest,
    Skills,
    WholeRequest,
    facts_of,
)
from headcount.studies.contrast.panels import COLUMNS, SHARED
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.tasks.skills import SKILLS
from headcount.value_table import ValueTable

PUBLISHED = 500  # updates
NOTES = (
    "Intervals are over test prompts (templates and words) and over fits, or random draws. The "
    "prompts on which gates are fitted are the same in all fits and are held fixed: other ones "
    "could give other gates.",
    "Random heads are drawn from all heads, those that the gates shut among them.",
)


def describe(models: Sequence[Model], config: Config) -> Description:
    """What the whole model can do; then a fit for each form to keep and each skill left out."""
    model = only_model(models, KIND.key)
    skills = Skills(model, config)
    able = AbleRequest(skills)
    requests: dict[Hashable, StudyRequest] = {"able": able}
    for skill, form in skills.tasks:
        requests[WHOLE, skill, form] = WholeRequest(skills, skill, form)
    sayings: dict[Hashable, str] = {}
    for skill in config.left_out:
        for keep in config.keep:
            requests[skill, keep] = ContrastRequest(skills, able, skill, keep)
            sayings[skill, keep] = f"{model.name}: keeping {keep}, without {SKILLS[skill]}"
    return Description(requests, _ContrastStudy(skills, config), sayings=sayings)


@dataclass(frozen=True, eq=False)
class _ContrastStudy:
    """Turns the results into a finished study."""

    skills: Skills
    config: Config

    def __call__(self, results: Results) -> Study:
        model, config = self.skills.model, self.config
        done: dict[tuple[str, str], Contrasted] = {
            (skill, keep): results[skill, keep]
            for skill in config.left_out
            for keep in config.keep
            if results[skill, keep] is not None
        }
        facts = plain_facts(self._facts(results, done))
        values = self._values(results, done, facts)
        found = estimate(values, facts)
        models = {model.name: model.facts}
        figures, captions = draw(values, facts, found, models)
        rankings = {key: one.gates.ranking() for key, one in done.items()}
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {model.name}",
            rows=found.rows,
            claims=found.claims,
            figures=figures,
            captions=captions,
            settings=asdict(config),
            model=models,
            scores={f"{skill}-{keep}-kept": scores for (skill, keep), scores in rankings.items()},
            heads=[
                row
                for (skill, keep), scores in rankings.items()
                for row in head_rows(model.name, skill, {f"contrast, {keep} kept": scores})
            ],
            notes=[*found.notes, *self._more_notes(done), *NOTES],
            tables={**found.tables, "Gates": gate_rows(model.name, done)} if done else found.tables,
            values=values,
            facts=facts,
        )

    def _facts(
        self, results: Results, done: Mapping[tuple[str, str], Contrasted]
    ) -> dict[str, Any]:
        """What estimates need besides the values."""
        return {
            "model": self.skills.model.name,
            "heads": self.skills.model.layout.total,
            "names": {skill: SKILLS[skill] for skill, _ in self.skills.tasks},
            "able": facts_of(results["able"]),
            "panels": [
                {"task": skill, "kept": keep, "fitted": one.skills}
                for (skill, keep), one in done.items()
            ],
            "shut": {
                f"{skill} {keep}": round(float(one.gates.shut.sum(1).mean()))
                for (skill, keep), one in done.items()
            },
            "seeds": self.config.seeds,
        }

    def _values(
        self,
        results: Results,
        done: Mapping[tuple[str, str], Contrasted],
        facts: Mapping[str, Any],
    ) -> ValueTable:
        """Both metrics of every test prompt: of the whole model, and under each head set."""
        values, model = ValueTable(COLUMNS, SHARED), self.skills.model.name
        for skill, form in self.skills.tasks:
            own = {"model": model, "task": skill, "form": form}
            tested = self.skills.tested(skill, form)
            values.name_examples([(e.id, *e.cluster) for e in tested], **own)
            for metric, table in results[WHOLE, skill, form].items():
                values.put(table, **own, kept="", metric=metric, series=WHOLE, count=0)
        for (skill, keep), one in done.items():
            count = facts["shut"][f"{skill} {keep}"]
            for (form, metric, series), table in one.values.items():
                own = {"model": model, "task": skill, "form": form, "kept": keep}
                values.put(table, **own, metric=metric, series=series, count=count)
        return values

    def _more_notes(self, done: Mapping[tuple[str, str], Contrasted]) -> Iterator[str]:
        config = self.config
        for (skill, keep), one in done.items():
            if note := one.gates.parameters.get("note"):
                yield f"{SKILLS[skill]} left out, {keep} kept: {note}."
        if config.variant == "short" or config.updates < PUBLISHED:
            start = "open gates" if config.variant == "short" else "random gates"
            yield (
                f"Each fit had {config.updates} updates from {start}, and the published fits have "
                f"{PUBLISHED} from random gates: these are other gates than published."
            )


def gate_rows(model: str, done: Mapping[tuple[str, str], Contrasted]) -> list[dict[str, Any]]:
    """How many heads are shut in each fit, and how many of them in all fits."""
    return [
        {
            "model": model,
            "task": skill,
            "kept": keep,
            "fitted to": ", ".join(one.skills),
            **_shut(one.gates),
            "undecided": one.gates.undecided,
        }
        for (skill, keep), one in done.items()
    ]


def _shut(gates: ContrastiveGates) -> dict[str, float]:
    shut, total = gates.shut, gates.layout.total
    shared = [
        float((one & other).sum() / max(1, min(one.sum(), other.sum())))
        for one, other in combinations(shut, 2)
    ]
    chance = [max(one.sum(), other.sum()) / total for one, other in combinations(shut, 2)]
    return {
        "heads shut": float(shut.sum(1).mean()),
        "fewest": int(shut.sum(1).min()),
        "most": int(shut.sum(1).max()),
        "shared by two fits": float(np.mean(shared)) if shared else float("nan"),
        "by chance": float(np.mean(chance)) if chance else float("nan"),
    }


KIND = StudyKind(
    "contrast", describe, Config, PRESETS, estimate=estimate, draw=draw, one_model=True
)
