"""What `headcount doctor` checks about a model and its tokenizer together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.models.forward_modes import exactly
from headcount.models.model import Model
from headcount.models.sites import run
from headcount.tasks.encoding import in_chat, own_prefix

# Any plain text would do; every model of English has a far lower loss on it than on noise.
TEXT = (
    "The old bridge was built of stone, and for two hundred years it was the only way across the "
    "river. In the morning the farmers brought milk and apples to the market; in the evening they "
    "went home by the same road. When the railway came, most people took the train, and the bridge "
    "became a quiet place where children went to fish."
)
CLEARLY = 0.5  # nats for each token: more than BOS changes for a model that does not need it


@dataclass(frozen=True)
class BosCheck:
    """The loss of a short text, in nats for each token, with the BOS token in front and without.

    `prefix` is what the tokenizer puts in front of a text by itself.
    """

    prefix: str
    bos: str
    with_bos: float
    without: float
    warning: str = ""


def check_bos(model: Model) -> BosCheck | None:
    """Compare both rules; None where the tokenizer has no BOS or cannot be asked."""
    tokenizer = model.tokenizer
    bos: Any = getattr(tokenizer, "bos_token_id", None)
    ids = tokenizer.encode(TEXT, add_special_tokens=False) if bos is not None else []
    ids = ids[: (model.context_limit or 1 << 20) - 1]
    if len(ids) < 2 or not _knows(model, [bos, *ids]):
        return None
    try:
        prefix = own_prefix(tokenizer, TEXT)
    except HeadcountError:
        return None
    losses = [_losses(model, [bos, *ids])[1:], _losses(model, ids)]
    with_bos, without = (float(loss.mean()) for loss in losses)
    inside = bos in prefix
    worse = losses[0] - losses[1] if inside else losses[1] - losses[0]
    gap, spread = float(worse.mean()), float(worse.std()) / len(worse) ** 0.5
    warning = ""
    if gap > max(CLEARLY, 2 * spread):
        does, other = ("", "never") if inside else (" no", "always")
        warning = (
            f"The tokenizer puts{does} {tokenizer.bos_token} in front of texts, and the model "
            f"reads them better {'without' if inside else 'with'} it (loss "
            f"{min(with_bos, without):.2f} against {max(with_bos, without):.2f} for each token): "
            f"measure tasks with bos={other}."
        )
    shown = str(tokenizer.decode(list(prefix))) if prefix else ""
    return BosCheck(shown, str(tokenizer.bos_token), with_bos, without, warning)


def token_warnings(model: Model) -> list[str]:
    """A sentence for each way in which the tokenizer does not fit the model or its own template."""
    tokenizer, known = model.tokenizer, model.vocabulary
    warnings = []
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    beyond = sorted(
        (number, token) for token, number in vocabulary.items() if number >= (known or 1 << 62)
    )
    if beyond:
        number, token = beyond[0]
        warnings.append(
            f"The tokenizer has {len(beyond)} token ids that the model does not know (the first is "
            f"{number}, {token!r}; the model knows {known}): prompts that need them are refused."
        )
    if _writes_bos_twice(tokenizer):
        warnings.append(
            f"Both the tokenizer and its chat template put {tokenizer.bos_token} in front: prompts "
            "of headcount begin with one, and other programs may give the model two."
        )
    return warnings


def _writes_bos_twice(tokenizer: Any) -> bool:
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None or not getattr(tokenizer, "chat_template", None):
        return False
    try:
        return list(tokenizer.encode(in_chat(tokenizer, "Hello")))[:2] == [bos, bos]
    except HeadcountError:  # a template that fails is refused where a task asks for it
        return False


def _knows(model: Model, ids: Sequence[int]) -> bool:
    return model.vocabulary is None or max(ids) < model.vocabulary


def _losses(model: Model, ids: Sequence[int]) -> Float[Tensor, "tokens"]:
    """The loss of each token but the first."""
    with exactly(model.module):
        tensor = torch.tensor([ids], device=model.device)
        logits = run(model.module, tensor)[0, :-1].float()
    return torch.nn.functional.cross_entropy(
        logits, tensor[0, 1:].to(logits.device), reduction="none"
    ).cpu()
