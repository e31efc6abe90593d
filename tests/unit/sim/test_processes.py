"""Processes: killed at any await, crashed within a call, paused; nothing of the dead runs."""

import asyncio
import gc
import warnings

import pytest

from ledgermq.runtime.errors import FatalError
from sim.context import CURRENT, SimCrash
from sim.loop import SimLoop, Stalled
from sim.transport import RESET, VANISH
from tests.unit.sim.machines import PORT, Pair

MS = 1_000_000


@pytest.fixture
def loop():
    loop = SimLoop(3)
    yield loop
    loop.close()


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.close()


def boot(loop, name="a"):
    host = loop.add_host(name, f"10.0.0.{len(loop.hosts)}")
    return loop.boot(host)


def test_everything_of_a_process_knows_it(loop):
    process, seen = boot(loop), []

    async def child():
        seen.append(CURRENT.get())
        await asyncio.sleep(0.001)
        seen.append(CURRENT.get())

    async def main():
        inner = asyncio.get_running_loop()
        inner.call_soon(lambda: seen.append(CURRENT.get()))
        inner.call_later(0.001, lambda: seen.append(CURRENT.get()))
        await inner.run_in_executor(None, lambda: seen.append(CURRENT.get()))
        await asyncio.create_task(child())

    loop.spawn(process, main())
    loop.run_for(10)
    assert seen == [process] * 5
    assert CURRENT.get() is None


def test_nothing_of_a_killed_process_runs(loop):
    process, seen = boot(loop), []

    async def wait(name):
        try:
            await asyncio.sleep(0.005)
            seen.append(name)
        finally:
            seen.append(f"{name} cleans up")

    async def main():
        inner = asyncio.get_running_loop()
        inner.call_later(0.005, seen.append, "timer")
        inner.run_in_executor(None, seen.append, "thread")
        tasks = [asyncio.create_task(wait(name)) for name in "ab"]
        await asyncio.gather(*tasks)

    loop.spawn(process, main())
    loop.run_until(1000)
    loop.kill(process)
    assert not process.alive
    loop.run_for(100)
    gc.collect()
    assert seen == []


def test_tasks_of_the_dead_make_no_noise_when_the_world_ends(capfd):
    loop = SimLoop(1)
    process = boot(loop)

    async def stubborn():
        try:
            await asyncio.Event().wait()
        finally:
            other = asyncio.create_task(asyncio.sleep(1))
            await asyncio.sleep(1)
            other.cancel()
            raise OSError("clean-up failed")

    async def fail():
        raise ValueError("nobody asks")

    async def main():
        failing = asyncio.create_task(fail())
        await stubborn()
        await failing

    task = loop.spawn(process, main())
    unstarted = stubborn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.run_for(1)
        loop.spawn(process, unstarted)
        loop.kill(process)
        loop.close()
        del task, unstarted, process, loop
        gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_crash_within_a_call_is_the_end(loop):
    process, seen, ends = boot(loop), [], []
    loop.on_kill = ends.append

    def call():
        seen.append("before")
        try:
            process.crash("failpoint")
        except Exception:  # noqa: BLE001
            seen.append("caught")

    async def main():
        asyncio.get_running_loop().call_later(0.001, seen.append, "later")
        call()
        seen.append("after")

    loop.spawn(process, main())
    loop.run_for(10)
    assert seen == ["before"]
    assert not process.alive
    assert not process.host.alive
    assert ends == [process]


def test_a_crash_in_a_thread_is_the_end_as_well(loop):
    process, seen = boot(loop), []

    async def main():
        def work():
            raise SimCrash("in a thread")

        await asyncio.get_running_loop().run_in_executor(None, work)
        seen.append("after")

    loop.spawn(process, main())
    loop.run_for(10)
    assert seen == []
    assert not process.alive


def test_a_fatal_error_ends_the_process_with_its_code(loop):
    process, ends = boot(loop), []
    loop.on_exit = lambda one: ends.append((one, one.exit_code, one.error.message))

    async def main():
        inner = asyncio.get_running_loop()
        error = FatalError("sync failed", 3)
        inner.call_exception_handler({"message": "", "exception": error})
        ends.append("never")

    loop.spawn(process, main())
    loop.run_for(1)
    assert ends == [(process, 3, "sync failed")]


def test_a_broken_assertion_ends_the_process_and_other_errors_are_kept(loop, caplog):
    first, second = boot(loop, "a"), boot(loop, "b")

    def fail(error):
        raise error

    async def main(error):
        asyncio.get_running_loop().call_soon(fail, error)

    loop.spawn(first, main(AssertionError("invariant")))
    loop.spawn(second, main(ValueError("odd")))
    loop.run_for(1)
    assert (first.alive, first.exit_code, second.alive) == (False, 3, True)
    assert [repr(one["exception"]) for one in loop.uncaught] == ["ValueError('odd')"]
    assert "event=uncaught" in caplog.text


def test_a_paused_process_stands_still_and_then_catches_up_in_order(loop):
    process, seen = boot(loop), []

    async def main():
        inner = asyncio.get_running_loop()
        for number in (1, 2, 3):
            inner.call_later(number / 1000, seen.append, number)

    loop.spawn(process, main())
    loop.run_until(int(1.5 * MS))
    loop.pause(process.host)
    assert process.host.paused
    loop.run_for(100)
    assert seen == [1]
    loop.resume(process.host)
    loop.run_for(1)
    assert seen == [1, 2, 3]


def test_a_pause_within_a_pause_ends_with_the_outer(loop):
    process, seen = boot(loop), []
    loop.pause(process.host)
    loop.pause(process.host)

    async def main():
        seen.append("ran")

    loop.spawn(process, main())
    loop.resume(process.host)
    loop.run_for(1)
    assert seen == []
    loop.resume(process.host)
    loop.run_for(1)
    assert seen == ["ran"]


def test_a_killed_process_ends_its_connections_and_frees_its_ports(pair):
    pair.loop.kill(pair.server)
    pair.loop.run_for(5)
    assert pair.client_log == ["made", "eof", "lost"]
    assert pair.server_log == ["made"]
    assert pair.loop.network.listeners == {}
    again = pair.loop.boot(pair.b)
    assert again.name == "b.2"
    pair.loop.spawn(again, pair.listen())
    pair.loop.run_for(1)
    assert list(pair.loop.network.listeners) == [("10.0.0.2", PORT)]


def test_a_kill_may_reset_the_connections(pair):
    pair.loop.kill(pair.server, RESET)
    pair.loop.run_for(5)
    assert pair.client_log == ["made", "ConnectionResetError"]


def test_a_machine_without_power_answers_nothing_and_knows_nothing_later(pair):
    pair.loop.kill(pair.server, VANISH)
    pair.loop.network.power_off("10.0.0.2")
    pair.write(b"anybody?")
    pair.loop.run_for(10_000)
    assert pair.client_log == ["made"]
    pair.loop.boot(pair.b)
    pair.write(b"hello?")
    pair.loop.run_for(5)
    assert pair.client_log == ["made", "ConnectionResetError"]


def test_two_dead_ends_do_not_reset_each_other_for_ever(pair):
    loop = pair.loop
    pair.write(b"x")
    loop.kill(pair.client)
    loop.kill(pair.server, RESET)
    loop.run_for(5)
    assert loop.step() is False


def test_a_dead_process_can_neither_write_nor_be_called_back(pair):
    pair.loop.kill(pair.client)
    pair.transport.write(b"from the grave")
    pair.transport.close()
    pair.transport.abort()
    pair.loop.run_for(5)
    assert pair.client_log == ["made"]
    assert pair.server_log == ["made", "eof", "lost"]


def test_a_slow_call_delays_everything_of_the_process_and_shows_on_its_clock(loop):
    process, seen = boot(loop), []
    clock = process.host.clock

    async def main():
        inner = asyncio.get_running_loop()
        inner.call_later(0.001, lambda: seen.append(clock.monotonic_ms()))
        before = clock.monotonic_ms()
        process.charge(50 * MS)
        seen.append(clock.monotonic_ms() - before)

    loop.spawn(process, main())
    loop.run_for(200)
    assert seen == [50, 50]
    assert clock.monotonic_ms() == 200


def test_work_of_a_thread_takes_what_its_calls_cost_and_only_then_has_effect(loop):
    process, seen = boot(loop), []
    clock = process.host.clock

    async def main():
        def work():
            process.charge(30 * MS)
            process.settling.append(lambda: seen.append("settled"))
            return "done"

        inner = asyncio.get_running_loop()
        inner.call_later(0.010, seen.append, "meanwhile")
        seen.append(await inner.run_in_executor(None, work))
        seen.append(clock.monotonic_ms())

    loop.spawn(process, main())
    loop.run_for(100)
    assert seen == ["meanwhile", "settled", "done", 30]


def test_threads_wait_while_the_disk_hangs(loop):
    process, seen = boot(loop), []

    async def main():
        def hang():
            process.gate_shut = True
            process.settling.append(lambda: seen.append("first"))

        inner, pool = asyncio.get_running_loop(), object()
        inner.run_in_executor(pool, hang)
        await inner.run_in_executor(pool, seen.append, "second")

    loop.spawn(process, main())
    loop.run_for(1000)
    assert seen == []
    process.open_gate()
    loop.run_for(1)
    assert seen == ["first", "second"]


def test_a_clock_that_runs_fast_moves_timers_too(loop):
    slow, fast = boot(loop, "slow"), boot(loop, "fast")
    fast.host.clock.set_rate(2.0)
    slow.host.clock.jump(-5000)
    ends = {}

    async def main(process):
        inner = asyncio.get_running_loop()
        before = inner.time()
        await asyncio.sleep(0.100)
        ends[process] = loop.now_ns // MS, round((inner.time() - before) * 1000)

    for process in (slow, fast):
        loop.spawn(process, main(process))
    loop.run_for(200)
    assert ends == {fast: (50, 100), slow: (100, 100)}
    assert fast.host.clock.monotonic_ms() == 400
    assert slow.host.clock.wall_ms() - fast.host.clock.wall_ms() == -5000 - 200


def test_waiting_for_what_never_comes_is_an_error(loop):
    with pytest.raises(Stalled):
        loop.run_until_complete(asyncio.wait_for(loop.create_future(), None))


def test_steps_are_single_callbacks(loop):
    process, seen = boot(loop), []
    process.after_event = lambda: seen.append(process.name)

    async def main():
        await asyncio.sleep(0.001)

    loop.spawn(process, main())
    assert [loop.step() for _ in range(4)] == [True, True, True, False]
    assert seen == ["a.1"] * 3
    assert loop.events == 3


def test_a_fatal_error_that_nobody_asked_for_is_fatal_when_its_task_is_gone(loop):
    process = boot(loop)

    async def fail():
        raise FatalError("unheard", 2)

    async def nothing():
        pass

    async def main():
        failing = asyncio.create_task(fail())
        await asyncio.sleep(0.001)
        del failing
        for _ in range(200):
            await asyncio.create_task(nothing())

    loop.spawn(process, main())
    loop.run_for(10)
    gc.collect()
    assert (process.alive, process.exit_code) == (False, 2)
