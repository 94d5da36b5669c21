from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Lab, evaluate, wrap
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout
from headcount.lab import lab_for
from headcount.metrics import Metric, get_metric
from headcount.registry import own_code
from headcount.store import Store, describe
from headcount.store import store as store_module
from headcount.system.files import canonical, digest
from headcount.system.paths import cache_dir

CONTEXT = {"model": "tiny", "task": "ioi", "metric": "accuracy", "ablation": "zero", "version": 1}
GATES = np.array([[1, 1, 1], [1, 0, 1], [0.5, 1, 0]], dtype=np.float32)
KEYS, NAMES = ["ka", "kb"], ["a", "b"]
VALUES = np.array([[0.25, 1.0], [-3.5, 2e-300], [1e300, -np.inf]])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


# -- reading and writing


def test_what_was_written_is_read_back_and_the_rest_is_unknown(store: Store) -> None:
    here = store.context(CONTEXT)
    assert here.write(GATES, KEYS, NAMES, VALUES) == 6
    np.testing.assert_array_equal(here.read(GATES, KEYS), VALUES)
    other = np.zeros((1, 3), dtype=np.float32)
    mixed = here.read(np.concatenate([other, GATES[1:2]]), ["kb", "unknown", "kb"])
    np.testing.assert_array_equal(mixed, [[np.nan] * 3, [2e-300, np.nan, 2e-300]])
    assert np.isnan(store.context({**CONTEXT, "version": 2}).read(GATES, KEYS)).all()


def test_reading_leaves_no_trace(store: Store) -> None:
    store.context(CONTEXT).read(GATES, KEYS)
    assert store.summary() == []


def test_no_head_sets_and_no_examples_are_fine(store: Store) -> None:
    here = store.context(CONTEXT)
    assert here.read(GATES, []).shape == (3, 0)
    assert here.read(GATES[:0], KEYS).shape == (0, 2)
    assert here.write(GATES[:0], KEYS, NAMES, VALUES[:0]) == 0


def test_the_first_measurement_stays(store: Store) -> None:
    here = store.context(CONTEXT)
    here.write(GATES, KEYS, NAMES, VALUES)
    assert here.write(GATES, KEYS, ["other", "names"], VALUES + 1) == 0
    np.testing.assert_array_equal(here.read(GATES, KEYS), VALUES)


def test_minus_zero_is_the_same_gate(store: Store) -> None:
    here = store.context(CONTEXT)
    here.write(np.array([[0.0, 1.0]], dtype=np.float32), ["k"], ["n"], np.array([[3.0]]))
    assert here.read(np.array([[-0.0, 1.0]], dtype=np.float32), ["k"]) == 3.0


def test_nan_is_refused_and_nothing_of_the_batch_is_kept(store: Store) -> None:
    here = store.context(CONTEXT)
    with pytest.raises(HeadcountError, match="not a number"):
        here.write(GATES[:1], KEYS, NAMES, np.array([[1.0, np.nan]]))
    assert store.summary() == []


def test_values_of_the_wrong_shape_are_a_mistake_in_the_program(store: Store) -> None:
    with pytest.raises(ValueError, match="2 example keys"):
        store.context(CONTEXT).write(GATES, KEYS, NAMES, VALUES[:, :1])
    with pytest.raises(ValueError, match="3 example names"):
        store.context(CONTEXT).write(GATES, KEYS, [*NAMES, "c"], VALUES)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_round_trip(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is written, in whatever pieces and order and however often, reads back the same."""
    numbers = st.floats(allow_nan=False, width=64)
    gate = st.floats(-2, 2, width=32)
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 4)))
    gates = data.draw(hnp.arrays(np.float32, shape, elements=gate, unique=True))
    keys = data.draw(st.lists(st.text(max_size=5), unique=True, min_size=1, max_size=6))
    values = data.draw(hnp.arrays(np.float64, (len(gates), len(keys)), elements=numbers))
    with Store(tmp_path_factory.mktemp("store") / "s.sqlite") as store:
        here = store.context(CONTEXT)
        total = 0
        for i in data.draw(st.permutations(range(len(gates)))):
            cut = data.draw(st.integers(0, len(keys)))
            for part in (slice(cut, None), slice(cut), slice(None)):
                total += here.write(gates[[i]], keys[part], keys[part], values[[i], part])
        assert total == values.size
        rows = data.draw(st.permutations(range(len(gates))))
        columns = data.draw(st.permutations(range(len(keys))))
        found = here.read(gates[rows], [keys[j] for j in columns])
        np.testing.assert_array_equal(found, values[np.ix_(rows, columns)])


def test_many_head_sets_are_read_quickly(store: Store) -> None:
    rng = np.random.default_rng(0)
    gates = (rng.random((1000, 144)) < 0.5).astype(np.float32)
    keys = [digest(f"{i}") for i in range(200)]
    values = rng.normal(size=(1000, 200))
    here = store.context(CONTEXT)
    here.write(gates, keys, keys, values)
    started = time.perf_counter()
    found = here.read(gates, keys)
    # About 0.2 s; one query per cell would take several.
    assert time.perf_counter() - started < 2
    np.testing.assert_array_equal(found, values)


# -- names and places


def test_a_context_is_the_same_in_any_order(store: Store) -> None:
    store.context({"a": 1, "b": [1, None]}).write(GATES, KEYS, NAMES, VALUES)
    assert not np.isnan(store.context({"b": (1, None), "a": 1}).read(GATES, KEYS)).any()
    assert canonical({"b": "é", "a": {"z": 1, "y": 2}}) == '{"a":{"y":2,"z":1},"b":"\\u00e9"}'


def test_a_context_must_be_json_and_leave_the_export_its_columns(store: Store) -> None:
    with pytest.raises(TypeError):
        store.context({"model": object()})
    with pytest.raises(ValueError, match="Out of range"):
        store.context({"epsilon": float("nan")})
    with pytest.raises(ValueError, match="value"):
        store.context({"value": 1})


def test_head_sets_are_described_and_their_gates_kept(store: Store) -> None:
    layout = HeadLayout((2, 1))
    store.context(CONTEXT, layout=layout).write(GATES, KEYS, NAMES, VALUES)
    rows = store.database.run(
        lambda c: c.execute("SELECT description, gates FROM head_sets ORDER BY id").fetchall()
    )
    assert [row[0] for row in rows] == ["all on", "off: 0.1 (1)", "soft (mean 0.5)"]
    for gates, (_, blob) in zip(GATES, rows, strict=True):
        np.testing.assert_array_equal(np.frombuffer(zlib.decompress(blob), "<f4"), gates)
    many = np.ones(40)
    many[:20] = 0
    assert describe(many) == "off: #0 #1 #2 #3 #4 #5 #6 #7 … (20)"


def test_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "deep" / "cache"))
    monkeypatch.delenv("HEADCOUNT_STORE", raising=False)
    with Store.open() as store:
        assert store.path == tmp_path / "deep" / "cache" / "store.sqlite"
    monkeypatch.setenv("HEADCOUNT_STORE", str(tmp_path / "else" / "mine.sqlite"))
    with Store.open() as store:
        assert store.path == tmp_path / "else" / "mine.sqlite"
    with Store.open(tmp_path / "given.sqlite") as store:
        assert store.path == tmp_path / "given.sqlite"


def test_a_cache_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(HeadcountError, match="set HEADCOUNT_CACHE"):
        cache_dir()


def test_documents(store: Store) -> None:
    assert store.get_document("scores", CONTEXT) is None
    value = {"values": [0.1, 1e-300], "samples": None}
    store.put_document("scores", CONTEXT, value)
    assert store.get_document("scores", CONTEXT) == value
    assert store.get_document("gates", CONTEXT) is None
    assert store.get_document("scores", {**CONTEXT, "seed": 1}) is None
    store.put_document("scores", CONTEXT, [1])
    assert store.get_document("scores", CONTEXT) == [1]


# -- listing, exporting, cleaning


@pytest.fixture
def filled(store: Store) -> Store:
    store.context(CONTEXT).write(GATES, KEYS, NAMES, VALUES)
    store.context({**CONTEXT, "task": "countries"}).write(GATES[:1], ["kc"], ["c"], VALUES[:1, :1])
    store.context({**CONTEXT, "model": "big"}).write(GATES[:2], KEYS, NAMES, VALUES[:2])
    store.put_document("scores", {"model": "big", "task": "ioi", "ranking": "random"}, [1, 2])
    return store


def test_summary(filled: Store) -> None:
    rows = filled.summary()
    found = [(r.model, r.task, r.head_sets, r.examples, r.values, r.documents) for r in rows]
    assert found == [
        ("big", "ioi", 0, 0, 0, 1),
        ("big", "ioi", 2, 2, 4, 0),
        ("tiny", "countries", 1, 1, 1, 0),
        ("tiny", "ioi", 3, 2, 6, 0),
    ]
    assert (rows[3].metric, rows[3].ablation) == ("accuracy", "zero")
    assert rows[3].context == CONTEXT
    assert abs(datetime.now(UTC) - rows[3].last_written) < timedelta(minutes=1)


def test_csv_export(filled: Store, tmp_path: Path) -> None:
    odd = 'a "quoted", name\nwith a line'
    filled.context({**CONTEXT, "task": odd, "chat": {"on": True}}).write(
        GATES[:1], ["ko"], ["=odd"], np.array([[0.1]])
    )
    assert filled.export(tmp_path / "all.csv") == 12
    with (tmp_path / "all.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:6] == ["model", "task", "metric", "ablation", "chat", "version"]
    assert len(rows) == 12
    last = rows[-1]
    assert (last["task"], last["example"], float(last["value"])) == (odd, "=odd", 0.1)
    assert (json.loads(last["chat"]), rows[0]["chat"]) == ({"on": True}, "")
    first = [float(row["value"]) for row in rows[:6]]
    np.testing.assert_array_equal(first, VALUES.ravel())
    assert rows[0]["head_set"] == "all on"
    assert rows[0]["created"].endswith("Z")
    assert [p.name for p in tmp_path.glob("all*")] == ["all.csv"]


def test_parquet_export(filled: Store, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert filled.export(tmp_path / "all.out", "parquet") == 11
    rows = parquet.read_table(tmp_path / "all.out").to_pylist()
    assert [row["value"] for row in rows[:6]] == VALUES.ravel().tolist()
    assert rows[0]["model"] == "tiny"
    assert rows[0]["version"] == "1"


def test_parquet_without_pyarrow(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HeadcountError, match=r"pip install 'headcount\[parquet\]'"):
        filled.export(tmp_path / "all.parquet")


def test_exports_that_cannot_be(filled: Store, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match='Did you mean "parquet"'):
        filled.export(tmp_path / "all.parqet")
    (tmp_path / "file").touch()
    with pytest.raises(HeadcountError, match="choose another path"):
        filled.export(tmp_path / "file" / "all.csv")
    (tmp_path / "kept.csv").mkdir()
    with pytest.raises(HeadcountError, match="choose another path"):
        filled.export(tmp_path / "kept.csv")
    assert not list(tmp_path.glob(".*.part"))


def test_cleaning(filled: Store) -> None:
    with pytest.raises(HeadcountError, match=r'has: big, tiny.*Did you mean "tiny"'):
        filled.clean(model="tinny")
    with pytest.raises(ValueError, match="everything"):
        filled.clean()
    with pytest.raises(ValueError, match="everything"):
        filled.clean(model="tiny", everything=True)
    assert filled.clean(model="big", task="countries") == 0
    assert filled.clean(model="big") == 4
    assert (
        filled.get_document("scores", {"model": "big", "task": "ioi", "ranking": "random"}) is None
    )
    assert filled.clean(model="tiny", task="countries") == 1
    np.testing.assert_array_equal(filled.context(CONTEXT).read(GATES, KEYS), VALUES)
    assert filled.clean(everything=True) == 6
    counts = "SELECT (SELECT count(*) FROM head_sets) + (SELECT count(*) FROM examples)"
    assert filled.database.run(lambda c: c.execute(counts).fetchone()) == (0,)
    assert filled.summary() == []


def test_cleaning_gives_room_back(store: Store) -> None:
    here = store.context(CONTEXT)
    gates = np.random.default_rng(0).random((100, 50)).astype(np.float32)
    here.write(gates, [f"{i}" for i in range(100)], ["n"] * 100, np.ones((100, 100)))
    store.database.shrink()
    before = store.path.stat().st_size
    assert store.clean(everything=True) == 10_000
    assert store.path.stat().st_size < before / 3


# -- processes: real ones

BATCH = (40, 50)  # head sets, examples
WORKER = """
import sys
import numpy as np
from headcount.store import Store
path, name, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
keys = [str(i) for i in range(50)]
with Store(path) as store:
    here = store.context({"model": name})
    print("open", flush=True)
    sys.stdin.readline()
    for batch in range(first, last):
        gates = np.arange(40, dtype=np.float32)[:, None] + np.float32(1000 * batch)
        here.write(gates, keys, keys, np.full((40, 50), float(batch)))
        print(batch, flush=True)
"""


def start(path: Path, name: str, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(path), name, str(first), str(last)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def batch_sizes(store: Store, name: str, batches: int) -> list[int]:
    gates = np.concatenate(
        [np.arange(BATCH[0])[:, None] + 1000.0 * batch for batch in range(batches)]
    ).astype(np.float32)
    found = store.context({"model": name}).read(gates, [str(i) for i in range(BATCH[1])])
    found = found.reshape(batches, -1)
    for batch, values in enumerate(found):
        assert (np.isnan(values) | (values == batch)).all()
    return [int(n) for n in (~np.isnan(found)).sum(1)]


def test_kill_9_loses_at_most_the_batch_in_flight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.sqlite"
    told = -1
    for pause in (0.0, 0.004, 0.009, 0.013, 0.02):
        with start(path, "m", told + 1, 10_000) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stdout.readline() == "open\n"
            worker.stdin.write("\n")
            worker.stdin.flush()
            for _ in range(3):
                told = int(worker.stdout.readline())
            time.sleep(pause)
            os.kill(worker.pid, signal.SIGKILL)
            told = max([told, *map(int, worker.stdout.read().split())])
        with Store(path) as store:
            sizes = batch_sizes(store, "m", told + 2)
            full = BATCH[0] * BATCH[1]
            # What the worker had told of is there; the batch after it is there whole or not at all.
            assert sizes[:-1] == [full] * (told + 1)
            assert sizes[-1] in (0, full)
            check = store.database.run(lambda c: c.execute("PRAGMA integrity_check").fetchall())
            assert check == [("ok",)]
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.glob("*.damaged-*"))


def finish(workers: list[subprocess.Popen[str]]) -> list[str]:
    """Let workers that have the store open go on at once; return what they wrote to stderr."""
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    errors = [worker.communicate(timeout=60)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers), errors
    return errors


def test_processes_write_the_same_and_different_keys_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    names = ["same", "same", "one", "two"]
    assert finish([start(path, name, 0, 12) for name in names]) == [""] * 4
    with Store(path) as store:
        for name in set(names):
            assert batch_sizes(store, name, 12) == [BATCH[0] * BATCH[1]] * 12
        assert sum(row.values for row in store.summary()) == 3 * 12 * BATCH[0] * BATCH[1]


def test_processes_that_meet_a_damaged_store_set_it_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    broken = b"garbage" * 10 + path.read_bytes()[70:]
    path.write_bytes(broken)
    errors = finish([start(path, f"m{i}", 0, 3) for i in range(4)])
    assert sorted(bool(error) for error in errors) == [False, False, False, True]
    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes() == broken
    with Store(path) as store:
        assert [batch_sizes(store, f"m{i}", 3) for i in range(4)] == [[2000] * 3] * 4


def test_texts_are_kept_beside_values(tmp_path: Path) -> None:
    gates = np.array([[1, 1, 1], [1, 0, 1]], dtype=np.float32)
    context = {"model": "tiny", "task": "capitals", "metric": "text", "ablation": "zero"}
    texts = np.array([["Paris", "Rome"]], dtype=object)
    with Store(tmp_path / "store.sqlite") as store:
        here = store.context(context)
        assert here.write(gates[:1], ["key a", "key b"], ["a", "b"], texts) == 2
        assert here.write(gates[:1], ["key a", "key b"], ["a", "b"], texts) == 0
        found = here.read(gates, ["key b", "key c"], texts=True)
        assert found.tolist() == [["Rome", None], [None, None]]
        assert np.isnan(here.read(gates, ["key b"])).all()
        (row,) = store.summary()
        assert (row.head_sets, row.examples, row.values) == (1, 2, 2)
        assert store.clean(task="capitals") == 2
        assert here.read(gates, ["key b"], texts=True).tolist() == [[None], [None]]


# -- the store that is used unless another one is given


def test_the_users_store_is_opened_once_and_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.sqlite"
    monkeypatch.setenv("HEADCOUNT_STORE", str(path))
    monkeypatch.setattr(store_module, "_OPENED", {})
    monkeypatch.setattr("headcount.lab.watched", lambda: True)
    model = wrap(tiny_model("llama"), toy_tokenizer(), name="llama")
    first, second = (lab_for(None, model).store for _ in range(2))
    assert first is not None
    assert (first.path, first is second, first is Lab().store) == (path, True, True)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"keeps measurements in {path}" in told
    assert Lab(store=None).store is None
    first.close()


def test_a_store_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_STORE", "off")
    assert Lab().store is None
    with pytest.raises(HeadcountError, match="HEADCOUNT_STORE is off"):
        Store.open()


def test_python_keeps_what_it_measures_and_notices_changed_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also changes that torch does not count, as those of merged adapters."""
    monkeypatch.setenv("HEADCOUNT_STORE", str(tmp_path / "mine.sqlite"))
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="llama"), toy_task(6)

    def measured() -> np.ndarray:
        return evaluate(model, task, ["0.1"], metric="logprob").values

    first = measured()
    store = Store.default()
    assert store is not None
    assert sum(row.values for row in store.summary()) == first.size
    np.testing.assert_array_equal(measured(), first)
    assert sum(row.values for row in store.summary()) == first.size
    weight = model.module.get_output_embeddings().weight
    changes: list[Callable[[], object]] = [
        lambda: weight.detach().mul_(1.5),
        lambda: weight.data.mul_(1.5),
        lambda: weight.data[0].add_(0.01),
    ]
    seen = [first]
    for change in changes:
        change()
        seen.append(measured())
        assert not np.allclose(seen[-1], seen[-2], atol=1e-6)
        with_no_store = evaluate(model, task, ["0.1"], metric="logprob", lab=Lab(store=None))
        np.testing.assert_allclose(seen[-1], with_no_store.values, atol=1e-5)
    assert sum(row.values for row in store.summary()) == 4 * first.size
    store.close()


def test_a_model_that_cannot_be_recognised_again_is_measured_without_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_STORE", str(tmp_path / "mine.sqlite"))
    model = wrap(tiny_model("llama"), toy_tokenizer(), name="llama")

    def refuse(*_: object) -> str:
        raise HeadcountError("The weight w is not in memory.")

    monkeypatch.setattr("headcount.models.model.fingerprint_tensors", refuse)
    assert len(evaluate(model, toy_task(6), []).values) == 1
    store = Store.default()
    assert store is not None
    assert store.summary() == []
    store.close()


def test_the_users_store_opens_again_after_it_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_STORE", str(tmp_path / "mine.sqlite"))
    first = Store.default()
    assert first is not None
    first.close()
    second = Store.default()
    assert second is not None
    assert second.summary() == []
    second.close()


def test_a_users_changed_code_is_measured_again(store: Store) -> None:
    """As in a notebook, whose cell is changed and run once more; ours need no digest."""
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="llama"), toy_task(6)
    lab = Lab(store)

    def measured(factor: float) -> np.ndarray:
        source = f"lambda scored: {factor} * get_metric('logprob').function(scored)"
        metric = Metric("own", "Own", eval(source, {"get_metric": get_metric}))
        return evaluate(model, task, [], metric=metric, lab=lab).values

    once, twice, again = measured(1.0), measured(2.0), measured(1.0)
    np.testing.assert_allclose(twice, 2 * once)
    np.testing.assert_array_equal(once, again)
    assert own_code(get_metric("logprob").function) == {}


def test_a_model_with_the_users_hooks_is_measured_without_a_store(store: Store) -> None:
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="llama"), toy_task(6)
    first = evaluate(model, task, [], metric="logprob", lab=Lab(store)).values
    head = model.module.get_output_embeddings()
    with head.register_forward_hook(lambda module, inputs, output: 2 * output):
        hooked = evaluate(model, task, [], metric="logprob", lab=Lab(store)).values
    assert not np.allclose(first, hooked)
    assert sum(row.values for row in store.summary()) == first.size


def test_a_store_of_another_thread_is_a_sentence(store: Store) -> None:
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(store.summary)
        with pytest.raises(HeadcountError, match="opened in another thread"):
            asked.result()
