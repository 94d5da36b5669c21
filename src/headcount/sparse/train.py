"""The training loop of the sparse model and of its dense control.

    min over weights of  E|A| + λ·(loss − limit)

E|A| is the expected share of open edges under noise of scale 1, also when the gates' own noise is
smaller. λ follows the loss with hard gates on text that is not trained on (see `Multiplier`). The
dense control runs the same steps on the same batches with every edge open.
"""

from __future__ import annotations

import json
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

from headcount.errors import HeadcountError
from headcount.models.memory import out_of_memory
from headcount.sparse import objective
from headcount.sparse.attention import Draw
from headcount.sparse.compiled import compiled
from headcount.sparse.make_sparse import dense_attention
from headcount.sparse.objective import Loss, Multiplier, gate_bias
from headcount.sparse.settings import Settings
from headcount.sparse.text import Text, training_batches
from headcount.sparse.tunable import Tunable, Values
from headcount.system.files import replacing, write_file
from headcount.system.interrupts import HeldSignals, holding_signals
from headcount.system.progress import duration
from headcount.system.progress import progress as progress_bar
from headcount.system.transformers_compat import replaced

STATE = "state.json"  # a run on disk: everything that its next step depends on
PACKING = ("transformers.masking_utils", "find_packed_sequence_indices")


@dataclass
class Best:
    """The best weights so far: the fewest open edges within the limit, else the lowest loss."""

    step: int
    loss: float
    edges: float
    met: bool

    @property
    def order(self) -> tuple[bool, float]:
        """A sort key: the smaller, the better."""
        return not self.met, self.edges if self.met else self.loss


@dataclass
class Running:
    """How a run is carried out, apart from its settings."""

    minutes: float | None = None  # stop after these; the same call continues from there
    rows: int | None = None  # blocks in one pass; a step may take several
    compile: bool | None = None  # None: only on an accelerator
    save_seconds: float = 60.0
    progress: bool = True
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise HeadcountError(f"rows must be at least 1, not {self.rows}.")
        if self.minutes is not None and not self.minutes >= 0:  # NaN is not, either
            raise HeadcountError(f"minutes must be at least 0, not {self.minutes}.")
        endless = self.minutes is None
        self.deadline = math.inf if endless else time.monotonic() + 60 * (self.minutes or 0)


@dataclass
class Run:
    """One training run; the dense control is the run without a limit."""

    tunable: Tunable
    text: Text
    settings: Settings
    folder: Path
    identity: Mapping[str, Any]
    how: Running
    attentions: Sequence[nn.Module] = ()
    draws: list[Draw] | None = None
    limit: float | None = None  # the highest loss allowed on the constraint's text, in nats
    # The control's loss by step: the limit at a step is never stricter than it.
    reference: Sequence[tuple[int, float]] = ()
    teacher: Values | None = None  # weights of the teacher; None: those before training
    label: str = ""  # what its progress is called
    # The next step depends on these and on the weights.
    step: int = 0
    average: Values = field(default_factory=dict)
    best: Best | None = None
    best_values: Values = field(default_factory=dict)
    log: list[dict[str, float]] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)  # of the steps since the last check

    def __post_init__(self) -> None:
        settings = self.settings
        self.sparse = self.limit is not None
        self.label = self.label or ("sparse" if self.sparse else "control")
        self.multiplier = Multiplier(
            (self.limit or 0.0) - settings.margin, settings.rate, settings.multiplier
        )
        self.rows = min(self.how.rows or settings.batch, settings.batch)
        self.loss_of: Callable[..., Tensor] = objective.training_loss
        self.optimizer = torch.optim.AdamW(
            self.tunable.weights.values(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.checked = self.text.constraint[: settings.constraint_blocks]

    def finish(self) -> bool:
        """Train from the saved state to the last step; False if the time ran out.

        An interruption waits for the end of the step, after which the state is saved.
        """
        self._resume()
        how, steps, device = self.how, self.settings.steps, self.tunable.device
        compiles = device.type != "cpu" if how.compile is None else how.compile
        with ExitStack() as stack:
            held = stack.enter_context(holding_signals(self._tell_interruption))
            shown = progress_bar(self.label, steps, show=how.progress, unit="step")
            bar = stack.enter_context(shown)
            bar.update(self.step)
            # transformers would look for several texts packed into one row, which makes the CPU
            # wait for the GPU in every pass. Blocks are never packed, so the search is skipped.
            stack.enter_context(replaced(*PACKING, lambda *_, **__: None))
            if compiles and self.attentions:
                compiling = compiled(self.tunable.module, self.attentions, how.say)
                self.loss_of = stack.enter_context(compiling)(objective.training_loss)
            in_time = self._train_on(bar, held)
            self._save()
        if not in_time:
            how.say(
                f"Time is up at step {self.step} of {steps} of the {self.label} run, which is kept "
                f"in {self.folder}: run the same command again to continue."
            )
        return in_time

    def _tell_interruption(self) -> None:
        self.how.say(
            "Interrupted: the current step is finished and saved first (interrupt again to stop at "
            "once, and to continue later from the last checkpoint)."
        )

    def _train_on(self, bar: Any, held: HeldSignals) -> bool:
        """Train the remaining steps; False if the time ran out."""
        settings, how = self.settings, self.how
        saved = began = time.monotonic()
        first = self.step
        rows = (settings.batch, settings.own_rows)
        source = training_batches(self.text, *rows, settings.seed, first)
        while self.step < settings.steps:
            ids = torch.from_numpy(next(source)).to(self.tunable.device)
            self.losses.append(self._step_in_memory(ids))
            self.step += 1
            if self._is_check():
                self._check_constraint()
            if held.pending:  # before anything is printed: the terminal may be closed
                self._save()
                held.release()
            bar.update(1)
            if self._is_check():
                bar.set_postfix_str(self._line())
            if self._is_report() and bar.disable:  # a visible bar shows the same
                left = (time.monotonic() - began) / max(1, self.step - first)
                left *= settings.steps - self.step
                how.say(f"{self.label} {self._line()} | {duration(left)} left")
            if time.monotonic() > how.deadline and self.step < settings.steps:
                return False
            if time.monotonic() - saved > how.save_seconds:
                self._save()
                saved = time.monotonic()
        return True

    def _step_in_memory(self, ids: Tensor) -> Tensor:
        """One step; if it does not fit into memory, the error says what to do."""
        try:
            return self._train(ids)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise HeadcountError(
                f"There is not enough memory for {self.rows} blocks of {self.settings.block} "
                f"tokens in one pass: give --rows {max(1, self.rows // 2)}, or shorter blocks."
            ) from error

    def _train(self, ids: Tensor) -> Tensor:
        """One step on one batch; returns its loss, which stays on the device."""
        bias = gate_bias(self.settings, self.step) if self.sparse else None
        weight = 1.0 if bias is None else self.multiplier.weight
        passes = ids.split(self.rows)
        mean = torch.zeros((), device=ids.device)
        for number, rows in enumerate(passes):
            share = len(rows) / len(ids)
            loss, edges = self._pass(rows, bias, self.step * len(passes) + number)
            total = weight * loss + ((1 - weight) * edges if edges is not None else 0)
            (total * share).backward()
            mean += loss.detach() * share
        weights = list(self.tunable.weights.values())
        nn.utils.clip_grad_norm_(weights, self.settings.clip)
        self.optimizer.param_groups[0]["lr"] = objective.learning_rate(self.settings, self.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if bias is not None:
            self.multiplier.step()
        self._move_average(weights)
        return mean

    def _pass(self, ids: Tensor, bias: float | None, number: int) -> tuple[Tensor, Tensor | None]:
        """The loss of one pass and, if it is sparse, the expected share of open edges."""
        share = self.settings.distil if self.sparse and bias is not None else 0.0
        teacher, module = None, self.tunable.module
        if share:
            with torch.no_grad(), self.tunable.using(self.teacher), dense_attention(module):
                teacher = self.tunable.logits(ids)
        if bias is None:
            with dense_attention(module):
                return self.loss_of(self.tunable.logits(ids), ids, None, 0.0), None
        draws = self.draws or []
        spread = objective.gate_noise(self.settings, self.step)
        for layer, draw in enumerate(draws):
            draw.bias.fill_(bias)
            draw.spread.fill_(spread)
            seed = (self.settings.seed * 1_000_003 + number * len(draws) + layer) % (1 << 31)
            draw.seed = torch.full((), seed, dtype=torch.int32, device=draw.bias.device)
        logits = self.tunable.logits(ids)
        loss = self.loss_of(logits, ids, teacher, share)
        return loss, objective.expected_share(draws).to(loss.device)

    @torch.no_grad()
    def _move_average(self, weights: list[nn.Parameter]) -> None:
        if not self.average:
            self.average = self.tunable.copy()
        # The decay is short at first, so that the average soon forgets the initial weights.
        decay = min(self.settings.average, (1 + self.step) / (10 + self.step))
        averages = [self.average[name] for name in self.tunable.weights]
        torch._foreach_lerp_(averages, [w.detach() for w in weights], 1 - decay)

    def measure(self, values: Values | None, blocks: Any, bias: float | None) -> Loss:
        """The loss of these weights (None: those before training) with hard gates."""
        with self.tunable.using(values):
            return self._measure(blocks, bias)

    def _measure(self, blocks: Any, bias: float | None) -> Loss:
        run, rows, device = self.tunable.logits, self.rows, self.tunable.device
        if bias is None:
            with dense_attention(self.tunable.module):
                return objective.measure(run, blocks, rows, None, device)
        for draw in self.draws or []:
            draw.bias.fill_(bias)
            draw.seed = None
        return objective.measure(run, blocks, rows, self.draws, device)

    def _check_constraint(self) -> None:
        """Measure the loss on the constraint's text; update violation, best weights and log."""
        settings = self.settings
        bias = gate_bias(settings, self.step - 1) if self.sparse else None
        now = self._measure(self.checked, bias)
        if not math.isfinite(now.loss):
            raise HeadcountError(
                f"Training diverged by step {self.step} (the loss is not finite): delete "
                f"{self.folder}, and give a smaller --lr."
            )
        if bias is not None:
            self.multiplier.observe(now.loss, self._limit() - settings.margin)
        row = {
            "step": self.step,
            "train_loss": float(torch.stack(self.losses).mean()),
            "constraint_loss": now.loss,
            "open_edges": now.edges,
            "multiplier": self.multiplier.value,
            "gate_bias": float("nan") if bias is None else bias,
            "limit": float("nan") if self.limit is None else self._limit(),
            "averaged_loss": float("nan"),
            "averaged_edges": float("nan"),
        }
        self.losses.clear()
        if self._is_report():
            averaged = self.measure(self.average, self.checked, bias)
            row |= {"averaged_loss": averaged.loss, "averaged_edges": averaged.edges}
            if self.limit is not None and bias == 0:
                for values, loss in ((self.average, averaged), (self.tunable.copy(), now)):
                    self._keep_best(values, loss)
        self.log.append(row)

    def _limit(self) -> float:
        """The limit at this step: at least the control's loss at the same step plus tolerance."""
        assert self.limit is not None
        if not self.reference or self.step == self.settings.steps:
            return self.limit
        steps, losses = zip(*self.reference, strict=True)
        of_control = float(np.interp(self.step, steps, losses))
        return max(self.limit, of_control + self.settings.tolerance)

    def _keep_best(self, values: Values, measured: Loss) -> None:
        assert self.limit is not None
        aim = self.limit - self.settings.margin  # the final text may be a little harder
        new = Best(self.step, measured.loss, measured.edges, measured.loss <= aim)
        if self.best is None or new.order < self.best.order:
            self.best = new
            self.best_values = {name: value.clone() for name, value in values.items()}

    def _is_check(self) -> bool:
        return self.step % self.settings.check_every == 0 or self.step == self.settings.steps

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
            "losses": [float(loss) for loss in self.losses],
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
                # Adam keeps its step count on the CPU.
                state[kind] = value if kind == "step" else value.to(device)
            else:
                parts[part][name] = value.to(device)
        self.tunable.put(parts["weight"])
        self.average, self.best_values = parts["average"], parts["best"]
        self.step, self.log = facts["step"], facts["log"]
        # States of earlier versions, saved right after a check, have no losses.
        self.losses = list(torch.tensor(facts.get("losses", []), device=device))
        self.multiplier = Multiplier(**facts["multiplier"])
        self.best = None if facts["best"] is None else Best(**facts["best"])
        if self.step < self.settings.steps:
            self.how.say(f"{self.label}: continues at step {self.step} of {self.settings.steps}")


def save_state(folder: Path, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Save numbers and tensors; the old state is deleted only when the new one is complete."""
    from safetensors.torch import save_file

    name = f"state-{facts['step']}.safetensors"
    with replacing(folder / name) as temporary:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, temporary)
    # JSON keeps floats exactly: Python writes as many digits as that needs.
    write_file(folder / STATE, json.dumps({**facts, "tensors": name}))
    for old in folder.glob("state-*.safetensors"):
        if old.name != name:
            old.unlink()


def load_state(
    folder: Path, identity: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """The saved state, or None; a state of other settings is refused, so that it is not lost."""
    from safetensors.torch import load_file

    if not (folder / STATE).exists():
        return None
    try:
        facts = json.loads((folder / STATE).read_text("utf-8"))
        tensors = load_file(folder / facts["tensors"])
    except Exception as error:
        raise HeadcountError(
            f"The saved state in {folder} is damaged: delete the folder to start again."
        ) from error
    ours = json.loads(json.dumps(identity))
    differing = [name for name, value in ours.items() if facts["identity"].get(name) != value]
    if differing:
        raise HeadcountError(
            f"{folder} holds a run with other settings ({', '.join(differing)}): choose another "
            "--out, or delete that folder."
        )
    return facts, tensors
