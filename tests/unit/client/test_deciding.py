"""Calls of a transaction listener: threads, what they return, and what has no thread."""

import asyncio
import threading

import pytest

from ledgermq.client import Message, MessageExt, TransactionOptions, TransactionState
from ledgermq.client.deciding import Deciding
from ledgermq.client.halves import HalfMessage
from ledgermq.client.off_loop import OffLoop
from mutants.patches import BY_TESTS
from mutants.planting import planted

COMMIT, UNKNOWN = TransactionState.COMMIT, TransactionState.UNKNOWN
HALF = HalfMessage.of(Message("orders", b"x"), "id-1")
ASKED: MessageExt = object()  # type: ignore[assignment] - the listeners here do not look at it


class Listener:
    """Two functions, given as they are."""

    def __init__(self, execute, check=None) -> None:
        self.execute = execute
        self.check = check or execute


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_local_transaction_runs_until_what_its_function_returned_has_ended():
    async def body():
        gate, begun = asyncio.Event(), asyncio.Event()

        async def work():
            begun.set()
            await gate.wait()
            return COMMIT

        deciding = Deciding(Listener(lambda _message, _arg: work()), TransactionOptions())
        waiting = asyncio.ensure_future(deciding.execute(HALF, None))
        while not begun.is_set():
            await asyncio.sleep(0)
            assert deciding.is_executing("id-1")
        assert deciding.is_executing("id-1")
        gate.set()
        assert await waiting is COMMIT
        assert not deciding.is_executing("id-1")

    asyncio.run(body())


def test_both_halves_of_such_a_call_have_one_time_limit(caplog):
    async def body():
        def execute(_message, _arg):
            threading.Event().wait(0.15)
            return asyncio.sleep(0.15, COMMIT)

        options = TransactionOptions(execute_timeout_ms=200)
        deciding = Deciding(Listener(execute), options)
        assert await deciding.execute(HALF, None) is UNKNOWN
        await until(lambda: not deciding.is_executing("id-1"))

    asyncio.run(body())
    assert "event=execute_takes_too_long ms=200" in caplog.text


def test_a_function_that_goes_on_after_its_time_is_still_executing():
    async def body():
        gate = threading.Event()
        options = TransactionOptions(execute_timeout_ms=20)
        deciding = Deciding(Listener(lambda _message, _arg: gate.wait(5)), options)
        assert await deciding.execute(HALF, None) is UNKNOWN
        assert deciding.is_executing("id-1")
        gate.set()
        await until(lambda: not deciding.is_executing("id-1"))

    asyncio.run(body())


def test_questions_that_hang_hold_up_no_local_transaction(caplog):
    async def body():
        gate = threading.Event()
        options = TransactionOptions(
            execute_timeout_ms=2_000, check_timeout_ms=30, checks_max=2, threads_max=2
        )
        listener = Listener(lambda _message, _arg: COMMIT, lambda _message: gate.wait(5))
        deciding = Deciding(listener, options)
        try:
            for number in range(3):
                assert await deciding.check(ASKED, f"asked-{number}") is UNKNOWN
            assert await deciding.execute(HALF, None) is COMMIT
        finally:
            gate.set()

    asyncio.run(body())
    said = [one.getMessage() for one in caplog.records]
    assert said == [
        "msg_id=asked-0 event=check_takes_too_long ms=30",
        "msg_id=asked-1 event=check_takes_too_long ms=30",
        "msg_id=asked-2 event=check_never_begun ms=30 reason=no_thread_is_free",
    ]


def no_threads(monkeypatch) -> None:
    def start(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_without_a_thread_it_is_unknown_and_the_next_one_goes_on(monkeypatch, caplog):
    async def body():
        deciding = Deciding(
            Listener(lambda _message, _arg: COMMIT), TransactionOptions(threads_max=1)
        )
        with monkeypatch.context() as none_left:
            no_threads(none_left)
            for _ in range(3):
                assert await deciding.execute(HALF, None) is UNKNOWN
                assert not deciding.is_executing("id-1")
        assert "event=execute_failed" in caplog.text
        assert "can't start new thread" in caplog.text
        assert await deciding.execute(HALF, None) is COMMIT

    asyncio.run(body())


def test_a_call_that_waited_for_a_thread_fails_if_there_is_none_any_more(monkeypatch):
    async def body():
        gate, ended = threading.Event(), []
        threads = OffLoop(1)
        first = threads.submit(lambda: gate.wait(5), lambda: ended.append(1))
        others = [threads.submit(lambda: 7, lambda: ended.append(2)) for _ in range(2)]
        with monkeypatch.context() as none_left:
            no_threads(none_left)
            gate.set()
            async with asyncio.timeout(5):
                assert await first
                for other in others:
                    with pytest.raises(RuntimeError, match="new thread"):
                        await other
        assert ended == [1, 2, 2]
        assert await threads.submit(lambda: 7, lambda: None) == 7

    asyncio.run(body())


def test_a_transaction_that_ends_with_its_function_is_found_here():
    with planted(BY_TESTS["client-tx-ends-with-its-function"]), pytest.raises(AssertionError):
        test_a_local_transaction_runs_until_what_its_function_returned_has_ended()


def test_questions_that_take_the_threads_of_transactions_are_found_here(caplog):
    with planted(BY_TESTS["client-tx-questions-take-its-threads"]), pytest.raises(AssertionError):
        test_questions_that_hang_hold_up_no_local_transaction(caplog)


async def decided_by_a_coroutine_with_too_few_arguments():
    async def execute():
        return COMMIT

    deciding = Deciding(Listener(execute), TransactionOptions())
    try:
        return await deciding.execute(HALF, None), await deciding.check(ASKED, "id-1")
    finally:
        assert not deciding.is_executing("id-1")


def test_a_coroutine_with_too_few_arguments_decides_nothing(caplog):
    assert asyncio.run(decided_by_a_coroutine_with_too_few_arguments()) == (UNKNOWN, UNKNOWN)
    assert "msg_id=id-1 event=execute_failed" in caplog.text
    assert "msg_id=id-1 event=check_failed" in caplog.text


def test_a_transaction_that_executes_for_ever_is_found_here():
    with planted(BY_TESTS["coroutine-called-outside"]), pytest.raises(AssertionError):
        asyncio.run(decided_by_a_coroutine_with_too_few_arguments())
