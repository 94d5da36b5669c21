"""How a measurement is carried out: which short cuts are taken, and how much runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.models.model import Model
from headcount.models.replay import ShortCuts

PLAIN = ShortCuts()
SHORTEST_PREFIX = 8  # tokens: below this a pass of its own costs more than it saves


@dataclass(frozen=True)
class Plan:
    """The short cuts to take and the tokens to run at once. No plan changes a value.

    `Plan(tokens=512, cuts=PLAIN)` is the plain loop: one head set after the other, every layer, all
    logits.
    """

    tokens: int
    cuts: ShortCuts = PLAIN
    fold: bool = False
    compile: bool = False  # pays for long sweeps on a GPU: compiling takes up to a minute

    def explain(self, model: Model, lengths: Sequence[int], prefix: int, sets: int) -> str:
        """What will be done, in words."""
        cuts = self.cuts
        site = "its output projection" if cuts.attention else "its block"
        steps = [
            f"{sets} head sets × {len(lengths)} examples, {min(lengths)} to {max(lengths)} tokens",
            "logits only where they are scored" if cuts.head else "all logits",
            f"passes start at the first gated head, at {site}"
            if cuts.trunk
            else "every pass runs all layers",
            "the last block's MLP only where logits are scored"
            if cuts.scored
            else "the last block at all positions",
            f"the first {prefix} tokens, which all examples share, once per head set"
            if cuts.cache and prefix
            else "no shared prefix",
            f"up to {self.tokens} tokens at once"
            + (", head sets side by side" if self.fold else ", one head set after the other"),
        ]
        return "\n".join(f"  {step}" for step in steps)


def default_tokens(model: Model) -> int:
    """How many tokens run at once unless told otherwise."""
    return 512 if model.device.type == "cpu" else 32_768


def best_plan(model: Model, tokens: int | None = None) -> Plan:
    """Every short cut that the model is proven to carry."""
    return Plan(tokens or default_tokens(model), model.short_cuts, fold=True)
