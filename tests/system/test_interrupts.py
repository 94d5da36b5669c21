"""Signals that wait: they act when the work is done, or at once when they come again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from headcount.system import interrupts
from headcount.system.interrupts import HeldSignals, holding_signals


def send(name: str = "SIGINT") -> None:
    os.kill(os.getpid(), getattr(signal, name))


def holding(work: Callable[[HeldSignals], object], tell: Callable[[], object] = list) -> None:
    with holding_signals(tell) as held:
        work(held)


def test_a_signal_acts_when_the_work_is_done() -> None:
    before, done, told = signal.getsignal(signal.SIGINT), [], []

    def work(_: HeldSignals) -> None:
        send()
        send()  # as some starters of programs pass it on
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        holding(work, lambda: told.append(1))
    assert done == told == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_acts_where_it_is_released() -> None:
    def work(held: HeldSignals) -> None:
        send()
        held.release()
        pytest.fail("the signal was not released")

    with pytest.raises(KeyboardInterrupt):
        holding(work)


def test_a_second_signal_acts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: HeldSignals) -> None:
        send()
        send()
        pytest.fail("the second signal waits, too")

    monkeypatch.setattr(interrupts, "AGAIN", -1.0)
    with pytest.raises(KeyboardInterrupt):
        holding(work)


def test_a_handler_that_goes_on_is_called_once() -> None:
    came: list[int] = []

    def work(held: HeldSignals) -> None:
        send("SIGTERM")
        assert not came
        held.release()
        assert came == [signal.SIGTERM]

    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        holding(work)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(came) == 1


def test_a_closed_terminal_does_not_stop_the_work() -> None:
    def tell() -> None:
        raise OSError(5, "Input/output error")

    def work(_: HeldSignals) -> None:
        send()
        done.append(1)

    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        holding(work, tell)
    assert done


def test_an_error_comes_before_a_signal_that_waits() -> None:
    def work(_: HeldSignals) -> None:
        send()
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        holding(work)


def test_other_threads_hold_nothing() -> None:
    held: list[HeldSignals] = []
    thread = threading.Thread(target=holding, args=(held.append,))
    thread.start()
    thread.join()
    assert held[0].handlers == {}
