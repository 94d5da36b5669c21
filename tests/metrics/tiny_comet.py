"""Make a COMET checkpoint of random weights, or score with it; run by COMET's own Python.

    python tiny_comet.py FOLDER                        make FOLDER/checkpoints/model.ckpt
    python tiny_comet.py FOLDER "SRC|MT|REF" …         print the scores by COMET's Python interface

It has the parts of wmt22-comet-da (an XLM-R encoder, mixed layers, a regression head) at the size
of a toy, and needs no network.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import yaml
from comet import load_from_checkpoint
from comet.models import RegressionMetric
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßN/A-▁"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def make_encoder(folder: Path) -> None:
    pieces = [(piece, 0.0) for piece in SPECIAL]
    pieces += [(letter, -3.0 - place / 100) for place, letter in enumerate(LETTERS)]
    pieces += [("<mask>", 0.0)]
    rules = Tokenizer(models.Unigram(pieces, unk_id=3))
    rules.pre_tokenizer = pre_tokenizers.Metaspace()
    rules.decoder = decoders.Metaspace()
    rules.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    XLMRobertaTokenizerFast(tokenizer_object=rules).save_pretrained(folder)
    config = XLMRobertaConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=514,
        type_vocab_size=1,
        initializer_range=0.5,
    )
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(folder)


def make(folder: Path) -> None:
    torch.manual_seed(0)
    make_encoder(folder / "encoder")
    settings = {
        "encoder_model": "XLM-RoBERTa",
        "pretrained_model": str((folder / "encoder").absolute()),
        "pool": "avg",
        "layer": "mix",
        "layer_transformation": "softmax",
        "layer_norm": False,
        "hidden_sizes": [32, 16],
        "activations": "Tanh",
    }
    model = RegressionMetric(**settings)
    with torch.no_grad():
        for parameter in model.estimator.parameters():
            parameter.normal_(0, 0.5)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "hparams.yaml").write_text(
        yaml.safe_dump({"class_identifier": "regression_metric", **settings})
    )
    checkpoint = {
        "state_dict": model.state_dict(),
        "hyper_parameters": dict(model.hparams),
        "pytorch-lightning_version": "2.0.0",
    }
    torch.save(checkpoint, folder / "checkpoints" / "model.ckpt")


def score(folder: Path, triples: list[str]) -> None:
    model = load_from_checkpoint(str(folder / "checkpoints" / "model.ckpt"))
    rows = [dict(zip(("src", "mt", "ref"), one.split("|"), strict=True)) for one in triples]
    found = model.predict(rows, gpus=0, accelerator="cpu", progress_bar=False, num_workers=0)
    print(json.dumps(found.scores))


if __name__ == "__main__":
    place, *given = sys.argv[1:]
    if given:
        score(Path(place), given)
    else:
        make(Path(place))
