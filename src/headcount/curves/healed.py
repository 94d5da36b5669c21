"""Pruned models that are really made: healed by short training, and timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.curves.pruned import BEST, WHOLE, Chosen, PrunedRequest, Pruning
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.executor import Local
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.measure.plan import MEASUREMENT
from headcount.lab import Lab
from headcount.models.groups import Geometry
from headcount.models.model import wrap
from headcount.models.prune import footprint, pruned_module
from headcount.models.speed import tokens_per_second
from headcount.rankings.ranking import examples_key
from headcount.sparse.heal import heal
from headcount.sparse.settings import Settings
from headcount.sparse.train import Running
from headcount.system.files import canonical, digest
from headcount.system.paths import cache_dir

KEEP = "healed"  # folder of the cache for adapters and unfinished runs
TRAINING = 3  # passes that a training step costs, about


@dataclass(frozen=True, eq=False)
class PrunedShape:
    """One pruned model: a size, and the best heads (draw None) or those of a random draw."""

    pruning: Pruning
    size: Geometry
    draw: int | None = None

    def gates(self, chosen: Chosen) -> Float[np.ndarray, "heads"]:
        """The gates that it equals."""
        return chosen.gates(self.size, self.draw, self.pruning.treatments[-1])

    def identity(self, chosen: Chosen) -> dict[str, Any]:
        """What determines its weights."""
        gates = digest(self.gates(chosen).tobytes())
        return {**self.pruning.model.identity, "gates": gates}

    def made(self, lab: Lab, settings: Settings | None = None) -> Any:
        """The pruned model in memory; with settings, after training on the text."""
        chosen = self.pruning.result(lab)
        module = pruned_module(self.pruning.model, self.gates(chosen))
        if settings is not None:
            for parameter in module.parameters():  # what was not cut is the whole model's own
                parameter.data = parameter.data.clone()
            text = self.pruning.text.result(lab)
            identity = {**self.identity(chosen), "text": text.source, **asdict(settings)}
            folder = cache_dir() / KEEP / digest(canonical(identity))[:16]

            def say(told: str) -> None:
                lab.say(told)

            how = Running(progress=lab.progress, say=say)
            with torch.enable_grad():
                heal(module, text, settings, folder, identity, how)
        return module


@dataclass(frozen=True, eq=False)
class HealedRequest:
    """A pruned and healed model on every task; `tests` are the requests without healing."""

    shape: PrunedShape
    tests: Mapping[str, PrunedRequest]
    settings: Settings

    def count(self, counter: Counter) -> None:
        """Count training and tests as passes."""
        pruning, settings = self.shape.pruning, self.settings
        pruning.count(counter)
        chosen, store = pruning.known(counter.store), counter.store
        if chosen and store and store.get_document("healed", self._context(chosen)):
            return
        steps = TRAINING * settings.steps * settings.batch * settings.block
        counter.passes(pruning.model, steps)
        for test in self.tests.values():
            counter.values(pruning.model, *test.size(), 0)

    def _context(self, chosen: Chosen) -> dict[str, Any]:
        encode = self.shape.pruning.model.encode
        tasks = {key: test.task or chosen.text for key, test in self.tests.items()}
        return {
            **self.shape.identity(chosen),
            "text": chosen.text.parameters["text"],
            "settings": asdict(self.settings),
            "tests": {
                key: [self.tests[key].metric, examples_key(encode(task.split("test")))]
                for key, task in tasks.items()
            },
            "measurement": MEASUREMENT,
        }

    def result(self, lab: Lab) -> dict[str, Float[np.ndarray, "examples"]]:
        """The values of every example, by the test's key."""
        model, chosen = self.shape.pruning.model, self.shape.pruning.result(lab)

        def make() -> dict[str, list[float]]:
            module = self.shape.made(lab, self.settings)
            healed = wrap(module, model.tokenizer, name=model.name)
            # All values are kept as one document, and workers could not load this model.
            alone = replace(lab, store=None, executor=Local())
            whole = HeadSets.of([], healed.layout)
            found = {}
            for key, test in self.tests.items():
                sweep = replace(test.sweep(test.task or chosen.text, whole), model=healed)
                found[key] = alone.measure(sweep).values[0].tolist()
            return found

        found = lab.document("healed", lambda: self._context(chosen), make)
        return {key: np.array(values) for key, values in found.items()}


@dataclass(frozen=True, eq=False)
class SpeedRequest:
    """A pruned model beside the whole one: footprints and tokens per second."""

    shape: PrunedShape
    rows: int = 4
    prompt: int = 256
    new: int = 16
    rounds: int = 6

    def count(self, counter: Counter) -> None:
        """Count what both models read and write."""
        self.shape.pruning.count(counter)
        chosen, store = self.shape.pruning.known(counter.store), counter.store
        if not (chosen and store and store.get_document("pruned-speed", self._context(chosen))):
            tokens = self.rows * (self.read + self.new) * (self.rounds + 1)
            counter.passes(self.shape.pruning.model, 2 * tokens)

    @property
    def read(self) -> int:
        """The tokens of a prompt: fewer where the model cannot read so many."""
        limit = self.shape.pruning.model.context_limit
        return self.prompt if limit is None else max(1, min(self.prompt, limit - self.new))

    @property
    def _how(self) -> dict[str, int]:
        numbers = {"rows": self.rows, "prompt": self.read, "new": self.new}
        return {**numbers, "rounds": self.rounds}

    def _context(self, chosen: Chosen) -> dict[str, Any]:
        device = str(self.shape.pruning.model.device)
        about = {"threads": torch.get_num_threads(), "device": device}
        return {**self.shape.identity(chosen), **self._how, **about}

    def result(self, lab: Lab) -> dict[str, Any]:
        """The footprints and, by round, the speeds of both models."""
        model, chosen = self.shape.pruning.model, self.shape.pruning.result(lab)

        def make() -> dict[str, Any]:
            both = {WHOLE: model.module, BEST: self.shape.made(lab)}
            sizes = {name: asdict(footprint(module)) for name, module in both.items()}
            return {"footprints": sizes, "speeds": tokens_per_second(both, **self._how)}

        found: dict[str, Any] = lab.document("pruned-speed", lambda: self._context(chosen), make)
        return found
