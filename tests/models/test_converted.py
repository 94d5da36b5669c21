"""A GGUF file is converted once, and a converted model equals one that was read from its file."""

from __future__ import annotations

import errno
import json
import os
import shutil
import types
from pathlib import Path

import pytest
import torch
from checkpoints import write_gguf

from headcount.errors import HeadcountError
from headcount.models import converted
from headcount.models.converted import SWITCH
from headcount.models.fingerprint import fingerprint_tensors, fingerprint_tokenizer
from headcount.models.load import Loaded, load_pretrained
from headcount.models.model import load_model
from headcount.system.bundled import clear_cache, list_cache, models_dir


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", add_bos=True)


class Counter:
    """Counts how often GGUF files are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        read = converted.read_gguf

        def counted(*args: object, **options: object) -> object:
            self.reads += 1
            return read(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(converted, "read_gguf", counted)


def load(path: Path, dtype: str = "float32") -> Loaded:
    return load_pretrained(path, device="cpu", dtype=dtype)


def test_is_converted_once(
    gguf: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    counter = Counter(monkeypatch)
    for _ in range(3):
        loaded = load(gguf)
        assert (loaded.name, loaded.files) == ("tiny", [gguf])
    assert counter.reads == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "Writing" not in line]
    assert line.startswith("Converting tiny.gguf once, to 0.0 GB in ")
    (row,) = list_cache()
    assert row.name == "tiny.gguf"
    assert clear_cache("tiny.gguf") == row.bytes
    load(gguf)
    assert counter.reads == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "auto"])
@pytest.mark.parametrize("family", ["llama-bpe", "gemma3", "qwen2-bpe"])
def test_equals_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, family: str
) -> None:
    gguf = write_gguf(tmp_path / "tiny.gguf", add_bos=True, family=family)
    load(gguf, dtype)
    kept = load(gguf, dtype)
    monkeypatch.setenv(SWITCH, "off")
    plain = load(gguf, dtype)
    ids = torch.arange(11)[None]
    assert torch.equal(kept.model(ids).logits, plain.model(ids).logits)
    assert kept.model.dtype == plain.model.dtype
    assert fingerprint_tensors(kept.model) == fingerprint_tensors(plain.model)
    assert fingerprint_tokenizer(kept.tokenizer) == fingerprint_tokenizer(plain.tokenizer)
    assert kept.unused == plain.unused


def test_is_the_same_model_in_the_store(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = load_model(gguf, device="cpu").identity
    monkeypatch.setenv(SWITCH, "off")
    assert load_model(gguf, device="cpu").identity == kept


def test_a_changed_file_is_converted_anew(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter(monkeypatch)
    before = fingerprint_tensors(load(gguf).model)
    stamp = gguf.stat().st_mtime_ns
    write_gguf(gguf, add_bos=True, seed=1)
    os.utime(gguf, ns=(stamp, stamp))  # the same size and date, but another inode or content
    assert fingerprint_tensors(load(gguf).model) != before
    assert counter.reads == 2


def test_another_version_of_transformers_reads_the_file_again(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    load(gguf)
    monkeypatch.setattr("transformers.__version__", "99.0")
    load(gguf)
    assert counter.reads == 2


def test_the_switch(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    load(gguf)
    assert list_cache() == []


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=10))


def fill_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(converted, "convert_gguf", full)


def block(monkeypatch: pytest.MonkeyPatch) -> None:
    models_dir().write_text("a file where a folder should be")


def lose(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(os.environ["HEADCOUNT_CACHE"]).write_text("a file where the cache folder should be")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (fill, "there is no room for it"),
        (fill_later, "there is no room for it"),
        (block, "it cannot be kept in"),
        (lose, "there is no cache folder"),
    ],
)
def test_a_cache_that_cannot_keep_it_is_no_error(
    gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    damage: object,
    words: str,
) -> None:
    damage(monkeypatch)  # type: ignore[operator]
    model = load_model(gguf, device="cpu")
    assert model.layout.total == 8
    assert model.identity["weights"]
    lines = capfd.readouterr().err.splitlines()
    assert [words in line for line in lines if "every load" in line] == [True]


def test_a_read_only_cache_serves(gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(gguf)
    counter = Counter(monkeypatch)
    for folder in (cache, *cache.rglob("*")):
        folder.chmod(folder.stat().st_mode & ~0o222)
    try:
        load(gguf)
    finally:
        for folder in (cache, *cache.rglob("*")):
            folder.chmod(folder.stat().st_mode | 0o200)
    assert counter.reads == 0


def test_an_interrupted_conversion_leaves_nothing(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, folder: Path, dtype: str) -> object:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(converted, "convert_gguf", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(gguf)
    assert list_cache() == []
    load(gguf)
    (row,) = list_cache()
    manifest = json.loads((row.path / "manifest.json").read_text())
    assert manifest["model"] == "tiny.gguf"


def test_a_file_that_lacks_weights_is_not_kept(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = converted.read_gguf

    def lacking(*args: object, **options: object) -> object:
        model, tokenizer, report = read(*args, **options)  # type: ignore[arg-type]
        return model, tokenizer, {**report, "missing_keys": ["lm_head.weight"]}

    monkeypatch.setattr(converted, "read_gguf", lacking)
    with pytest.raises(HeadcountError, match=r"lacks weights .*lm_head"):
        load(gguf)
    assert list_cache() == []


@pytest.mark.parametrize("family", ["llama-bpe", "gemma3", "qwen2-bpe"])
@pytest.mark.parametrize("switch", ["on", "off"])
def test_weights_of_other_shapes_are_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str, family: str
) -> None:
    """Without their number, there are as many key/value heads as query heads."""
    monkeypatch.setenv(SWITCH, switch)
    gguf = write_gguf(tmp_path / "tiny.gguf", family=family, kv_heads=False)
    for _ in range(2):
        with pytest.raises(
            HeadcountError, match=r"k_proj\.weight is 16 × 32, not .* × 32\).* key/"
        ):
            load(gguf)
    assert list_cache() == []


def test_as_many_key_heads_as_query_heads_need_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpoints.KEYS", 4)
    loaded = load(write_gguf(tmp_path / "tiny.gguf", kv_heads=False))
    assert loaded.model.config.num_key_value_heads == 4
