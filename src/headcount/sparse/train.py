"""The training loop: one for the dense control and one for the sparse model, which are the same.

    min over weights of  E|A| + λ·(loss − limit)

E|A| is the expected share of open edges under the whole noise, also where that has faded. λ
follows the loss on text that is not trained on, with hard gates (see `schedule.Multiplier`). The
dense control runs the same steps on the same batches with every edge open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headcount.engine.measure.forward import out_of_memory
from headcount.errors import HeadcountError
from headcount.sparse.attention import Draw
from headcount.sparse.attention_layer import dense_attention
from headcount.sparse.compiled import compiled, never_packed
from headcount.sparse.loss import Loss, expected_share, measure, training_loss
from headcount.sparse.schedule import Multiplier, gate_bias, gate_noise, learning_rate
from headcount.sparse.settings import Settings
from headcount.sparse.text import Text, training_batches
from headcount.sparse.training_state import load_state, save_state
from headcount.sparse.tunable import Tunable, Values
from headcount.system.progress import progress as progress_bar

Say = Callable[[str], None]
SAVE_SECONDS = 60.0


@dataclass
class Best:
    """The weights to keep: the fewest open edges within what is aimed at, or the lowest loss."""

    step: int
    loss: float
    edges: float
    met: bool

    def beats(self, other: Best | None) -> bool:
        """Whether these weights are to be kept rather than those."""
        if other is None or self.met != other.met:
            return other is None or self.met
        return self.edges < other.edges if self.met else self.loss < other.loss


@dataclass
class Run:
    """One training run; without a limit it is the dense control's."""

    tunable: Tunable
    text: Text
    settings: Settings
    folder: Path
    identity: Mapping[str, Any]
    draws: list[Draw] | None = None
    attentions: Sequence[nn.Module] = ()
    limit: float | None = None  # nats on the constraint's text
    # of the control at its steps: nobody can be better than it was when it had learned as much
    reference: Sequence[tuple[int, float]] = ()
    teacher: Values | None = None  # of the distillation; None is the model before tuning
    rows: int | None = None  # of one pass; a step may take several
    compile: bool = False
    deadline: float = float("inf")  # of time.monotonic
    save_seconds: float = SAVE_SECONDS
    progress: bool = True
    say: Say = print
    # what the next step depends on, beside the weights
    step: int = 0
    average: Values = field(default_factory=dict)
    best: Best | None = None
    best_values: Values = field(default_factory=dict)
    log: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.sparse = self.limit is not None
        self.label = "sparse" if self.sparse else "control"
        self.multiplier = Multiplier(
            (self.limit or 0.0) - settings.margin, settings.rate, settings.multiplier
        )
        self.rows = min(self.rows or settings.batch, settings.batch)
        self.loss_of: Callable[..., Tensor] = training_loss
        self.optimizer = torch.optim.AdamW(
            self.tunable.weights.values(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.checked = self.text.constraint[: settings.constraint_blocks]

    def finish(self) -> bool:
        """Train from where the folder's state is to the end; False if time ran out before."""
        self._resume()
        settings = self.settings
        saved = time.monotonic()
        began, first = time.monotonic(), self.step
        source = training_batches(
            self.text, settings.batch, settings.own_rows, settings.seed, self.step
        )
        losses: list[Tensor] = []
        with ExitStack() as stack:
            bar = stack.enter_context(
                progress_bar(self.label, settings.steps, show=self.progress, unit="step")
            )
            bar.update(self.step)
            stack.enter_context(never_packed())
            if self.compile and self.attentions:
                makes = compiled(self.tunable.module, self.attentions, self.say)
                self.loss_of = stack.enter_context(makes)(training_loss)
            while self.step < settings.steps:
                ids = torch.from_numpy(next(source)).to(self.tunable.device)
                losses.append(self._trained(ids))
                self.step += 1
                bar.update(1)
                if self.step % settings.check_every and self.step < settings.steps:
                    continue
                self._look(losses)
                bar.set_postfix_str(self._line())
                if self._is_report() and bar.disable:  # a bar says the same
                    left = (time.monotonic() - began) / max(1, self.step - first)
                    left *= settings.steps - self.step
                    self.say(f"{self.label} {self._line()} | {_minutes(left)} left")
                if time.monotonic() > self.deadline and self.step < settings.steps:
                    self._save()
                    return False
                if time.monotonic() - saved > self.save_seconds:
                    self._save()
                    saved = time.monotonic()
        self._save()
        return True

    def _trained(self, ids: Tensor) -> Tensor:
        """One step, or a sentence where it does not fit into memory."""
        try:
            return self._train(ids)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            rows = self.rows or self.settings.batch
            raise HeadcountError(
                f"There is not enough memory for {rows} blocks of {self.settings.block} tokens in "
                f"one pass: give --rows {max(1, rows // 2)}, or shorter blocks."
            ) from error

    def _train(self, ids: Tensor) -> Tensor:
        """One step on one batch; returns its loss, which stays on the device."""
        bias = gate_bias(self.settings, self.step) if self.sparse else None
        weight = 1.0 if bias is None else self.multiplier.weight
        passes = ids.split(self.rows or len(ids))
        found = torch.zeros((), device=ids.device)
        for number, some in enumerate(passes):
            share = len(some) / len(ids)
            loss, edges = self._pass(some, bias, self.step * len(passes) + number)
            total = weight * loss + ((1 - weight) * edges if edges is not None else 0)
            (total * share).backward()
            found += loss.detach() * share
        weights = list(self.tunable.weights.values())
        nn.utils.clip_grad_norm_(weights, self.settings.clip)
        self.optimizer.param_groups[0]["lr"] = learning_rate(self.settings, self.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if bias is not None:
            self.multiplier.step()
        self._move_average(weights)
        return found

    def _pass(self, ids: Tensor, bias: float | None, number: int) -> tuple[Tensor, Tensor | None]:
        """The loss of one pass and, where gates are drawn, the expected edges."""
        share = self.settings.distil if self.sparse and bias is not None else 0.0
        teacher = None
        if share:
            with (
                torch.no_grad(),
                self.tunable.using(self.teacher),
                dense_attention(self.tunable.module),
            ):
                teacher = self.tunable.logits(ids)
        if bias is None:
            with dense_attention(self.tunable.module):
                return self.loss_of(self.tunable.logits(ids), ids, None, 0.0), None
        draws = self.draws or []
        spread = gate_noise(self.settings, self.step)
        for layer, draw in enumerate(draws):
            draw.bias.fill_(bias)
            draw.spread.fill_(spread)
            seed = (self.settings.seed * 1_000_003 + number * len(draws) + layer) % (1 << 31)
            draw.seed = torch.full((), seed, dtype=torch.int32, device=draw.bias.device)
        logits = self.tunable.logits(ids)
        loss = self.loss_of(logits, ids, teacher, share)
        return loss, expected_share(draws).to(loss.device)

    @torch.no_grad()
    def _move_average(self, weights: list[nn.Parameter]) -> None:
        if not self.average:
            self.average = self.tunable.copy()
        # A short memory at first, so that where training began is soon forgotten.
        kept = min(self.settings.average, (1 + self.step) / (10 + self.step))
        averages = [self.average[name] for name in self.tunable.weights]
        torch._foreach_lerp_(averages, [w.detach() for w in weights], 1 - kept)

    def measure(self, values: Values | None, blocks: Any, bias: float | None) -> Loss:
        """The loss of these weights (None: as they were before tuning) with hard gates."""
        with self.tunable.using(values):
            return self._measure(blocks, bias)

    def _measure(self, blocks: Any, bias: float | None) -> Loss:
        run, device = self.tunable.logits, self.tunable.device
        rows = self.rows or self.settings.batch
        if bias is None:
            with dense_attention(self.tunable.module):
                return measure(run, blocks, rows, None, device)
        for draw in self.draws or []:
            draw.bias.fill_(bias)
            draw.seed = None
        return measure(run, blocks, rows, self.draws, device)

    def _look(self, losses: list[Tensor]) -> None:
        """Measure on the constraint's text, move the best, and write a line of the log."""
        settings = self.settings
        bias = gate_bias(settings, self.step - 1) if self.sparse else None
        now = self._measure(self.checked, bias)
        if not math.isfinite(now.loss):
            raise HeadcountError(
                f"Training went astray by step {self.step} (the loss is no number any more): give "
                "a smaller --lr, and delete what the run kept."
            )
        if bias is not None:
            self.multiplier.look(now.loss, self._limit() - settings.margin)
        row = {
            "step": self.step,
            "train_loss": float(torch.stack(losses).mean()),
            "constraint_loss": now.loss,
            "open_edges": now.edges,
            "multiplier": self.multiplier.value,
            "gate_bias": float("nan") if bias is None else bias,
            "limit": float("nan") if self.limit is None else self._limit(),
            "averaged_loss": float("nan"),
            "averaged_edges": float("nan"),
        }
        losses.clear()
        if self._is_report():
            averaged = self.measure(self.average, self.checked, bias)
            row |= {"averaged_loss": averaged.loss, "averaged_edges": averaged.edges}
            if self.limit is not None and bias == 0:
                for values, found in ((self.average, averaged), (self.tunable.copy(), now)):
                    self._keep_best(values, found)
        self.log.append(row)

    def _limit(self) -> float:
        """The limit at this step: while the control was still learning, so may this model."""
        assert self.limit is not None
        if not self.reference or self.step == self.settings.steps:
            return self.limit
        steps, losses = zip(*self.reference, strict=True)
        then = float(np.interp(self.step, steps, losses)) + self.settings.tolerance
        return max(self.limit, then)

    def _keep_best(self, values: Values, found: Loss) -> None:
        assert self.limit is not None
        aim = self.limit - self.settings.margin  # other text is a little harder, or easier
        one = Best(self.step, found.loss, found.edges, found.loss <= aim)
        if one.beats(self.best):
            self.best = one
            self.best_values = {name: value.clone() for name, value in values.items()}

    def _is_report(self) -> bool:
        return self.step % self.settings.evaluate_every == 0 or self.step == self.settings.steps

    def _line(self) -> str:
        row = self.log[-1]
        text = f"step {self.step}/{self.settings.steps} | loss {row['train_loss']:.3f} "
        text += f"held out {row['constraint_loss']:.3f}"
        if self.limit is None:
            return text
        return (
            f"{text} limit {row['limit']:.3f} | λ {self.multiplier.value:.3g} "
            f"| open edges {row['open_edges']:.2%}"
        )

    def _save(self) -> None:
        tensors: Values = {f"weight.{name}": w for name, w in self.tunable.weights.items()}
        tensors |= {f"average.{name}": value for name, value in self.average.items()}
        tensors |= {f"best.{name}": value for name, value in self.best_values.items()}
        for name, weight in self.tunable.weights.items():
            for key, value in self.optimizer.state[weight].items():
                tensors[f"adam.{key}.{name}"] = torch.as_tensor(value)
        facts = {
            "identity": dict(self.identity),
            "step": self.step,
            "multiplier": asdict(self.multiplier),
            "best": None if self.best is None else asdict(self.best),
            "log": self.log,
        }
        save_state(self.folder, facts, tensors)

    def _resume(self) -> None:
        kept = load_state(self.folder, self.identity)
        if kept is None:
            return
        facts, tensors = kept
        device = self.tunable.device
        parts: dict[str, Values] = {"weight": {}, "average": {}, "best": {}}
        for key, value in tensors.items():
            part, _, name = key.partition(".")
            if part == "adam":
                kind, _, name = name.partition(".")
                state = self.optimizer.state[self.tunable.weights[name]]
                # Adam counts its steps on the host.
                state[kind] = value if kind == "step" else value.to(device)
            else:
                parts[part][name] = value.to(device)
        self.tunable.put(parts["weight"])
        self.average, self.best_values = parts["average"], parts["best"]
        self.step, self.log = facts["step"], facts["log"]
        self.multiplier = Multiplier(**facts["multiplier"])
        self.best = None if facts["best"] is None else Best(**facts["best"])
        if self.step < self.settings.steps:
            self.say(f"{self.label}: goes on at step {self.step} of {self.settings.steps}")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
