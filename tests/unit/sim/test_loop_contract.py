"""The simulated loop against asyncio's own: the same programs, the same answers."""

import asyncio
import contextvars
import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from sim.loop import SimLoop

LIMIT_S = 20


def run_real(main):
    async def limited():
        async with asyncio.timeout(LIMIT_S):
            return await main()

    with asyncio.Runner() as runner:
        return runner.run(limited())


def run_sim(main):
    loop = SimLoop(1)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.fixture(params=[run_real, run_sim], ids=["asyncio", "sim"])
def run(request):
    return request.param


# Callbacks


def test_call_soon_is_first_in_first_out(run):
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        for number in range(5):
            loop.call_soon(seen.append, number)
        loop.call_soon_threadsafe(seen.append, 5)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return seen

    assert run(main) == [0, 1, 2, 3, 4, 5]


def test_timers_run_in_order_of_time_and_of_the_call(run):
    async def main():
        loop, seen, done = asyncio.get_running_loop(), [], asyncio.Event()
        at = loop.time() + 0.004
        loop.call_at(at + 0.004, done.set)
        loop.call_at(at + 0.002, seen.append, "late")
        loop.call_at(at, seen.append, "first")
        loop.call_at(at + 0.001, seen.append, "second")
        loop.call_soon(seen.append, "soon")
        await done.wait()
        assert loop.time() >= at + 0.004
        return seen

    assert run(main) == ["soon", "first", "second", "late"]


def test_what_a_turn_makes_ready_waits_for_the_next_and_due_timers_go_before_it(run):
    async def main():
        loop, seen, done = asyncio.get_running_loop(), [], asyncio.Event()

        def one():
            seen.append("one")
            loop.call_soon(seen.append, "three")
            loop.call_soon(loop.call_soon, done.set)

        loop.call_soon(one)
        loop.call_soon(seen.append, "two")
        await done.wait()
        return seen

    assert run(main) == ["one", "two", "three"]


def test_a_cancelled_handle_does_not_run(run):
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        soon, later = loop.call_soon(seen.append, 1), loop.call_later(0.001, seen.append, 2)
        soon.cancel()
        later.cancel()
        assert soon.cancelled()
        assert later.cancelled()
        await asyncio.sleep(0.003)
        return seen

    assert run(main) == []


def test_callbacks_and_tasks_inherit_the_context_of_who_made_them(run):
    variable = contextvars.ContextVar("variable", default="none")

    async def main():
        loop, seen = asyncio.get_running_loop(), []

        async def child():
            seen.append(("task", variable.get()))
            variable.set("child")

        variable.set("parent")
        loop.call_soon(lambda: seen.append(("soon", variable.get())))
        loop.call_later(0, lambda: seen.append(("later", variable.get())))
        await loop.create_task(child())
        other = contextvars.Context()
        await loop.create_task(child(), context=other)
        await asyncio.sleep(0.001)
        return sorted(seen), variable.get(), other[variable]

    seen, own, other = run(main)
    assert seen == [("later", "parent"), ("soon", "parent"), ("task", "none"), ("task", "parent")]
    assert own == "parent"
    assert other == "child"


def test_an_error_in_a_callback_goes_to_the_exception_handler(run):
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: seen.append(repr(context["exception"])))

        def fail():
            raise ValueError("no")

        loop.call_soon(fail)
        loop.call_later(0.001, fail)
        await asyncio.sleep(0.003)
        return seen

    assert run(main) == ["ValueError('no')"] * 2


# Tasks and futures


def test_timeouts_events_queues_and_groups(run):
    async def main():
        seen = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.002):
                await asyncio.Event().wait()
        queue = asyncio.Queue(1)

        async def produce():
            for number in range(3):
                await queue.put(number)

        async def consume():
            for _ in range(3):
                seen.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        seen += await asyncio.gather(asyncio.sleep(0.002, "b"), asyncio.sleep(0.001, "a"))
        seen.append(await asyncio.wait_for(asyncio.sleep(0, "c"), 1))
        return seen

    assert run(main) == [0, 1, 2, "b", "a", "c"]


def test_a_cancelled_task_runs_its_clean_up(run):
    async def main():
        seen = []

        async def child():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                seen.append("cleaned")

        task = asyncio.create_task(child(), name="child")
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [*seen, task.get_name()]

    assert run(main) == ["cleaned", "child"]


def test_an_executor_of_one_thread_works_in_order(run):
    async def main():
        loop, seen, pool = asyncio.get_running_loop(), [], ThreadPoolExecutor(1)
        futures = [loop.run_in_executor(pool, seen.append, number) for number in range(4)]
        assert seen in ([], [0])  # never within the call, in the simulation
        await asyncio.gather(*futures)

        def fail():
            raise OSError("disk")

        with pytest.raises(OSError, match="disk"):
            await loop.run_in_executor(None, fail)
        pool.shutdown()
        return seen

    assert run(main) == [0, 1, 2, 3]


# Connections


class Noted(asyncio.Protocol):
    """Writes down what is called, data joined."""

    def __init__(self, keep_half_open=False):
        self.calls = []
        self.data = b""
        self.keep_half_open = keep_half_open
        self.made = asyncio.get_running_loop().create_future()
        self.eof = asyncio.get_running_loop().create_future()
        self.lost = asyncio.get_running_loop().create_future()
        self.got = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport
        self.calls.append("made")
        self.made.set_result(None)

    def data_received(self, data):
        if self.calls[-1] != "data":
            self.calls.append("data")
        self.data += data
        self.got.set()

    def eof_received(self):
        self.calls.append("eof")
        self.eof.set_result(None)
        return self.keep_half_open

    def pause_writing(self):
        self.calls.append("pause")

    def resume_writing(self):
        self.calls.append("resume")

    def connection_lost(self, error):
        self.calls.append(f"lost {error!r}")
        self.lost.set_result(None)


class Buffered(asyncio.BufferedProtocol):
    """Takes seven bytes at a time."""

    def __init__(self):
        self.data = b""
        self.buffer = bytearray(7)
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, count):
        self.data += self.buffer[:count]

    def connection_lost(self, error):
        self.lost.set_result(None)


async def connect(make_server=Noted, make_client=Noted):
    """Return server, server's end, client's end."""
    loop, ends = asyncio.get_running_loop(), []

    def accept():
        ends.append(make_server())
        return ends[0]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, client = await loop.create_connection(make_client, "127.0.0.1", port)
    while not ends or getattr(ends[0], "transport", None) is None:
        await asyncio.sleep(0.0005)
    return server, ends[0], client


def test_both_ends_hear_of_a_close_in_order(run):
    async def main():
        server, there, here = await connect()
        here.transport.write(b"hello")
        here.transport.writelines([b" ", b"world"])
        here.transport.close()
        assert here.transport.is_closing()
        here.transport.write(b"unheard")
        await asyncio.gather(here.lost, there.lost)
        server.close()
        return here.calls, there.calls, there.data

    here, there, data = run(main)
    assert here == ["made", "lost None"]
    assert there == ["made", "data", "eof", "lost None"]
    assert data == b"hello world"


def test_addresses_are_told(run):
    async def main():
        server, there, here = await connect()
        near, far = here.transport, there.transport
        assert near.get_extra_info("peername") == far.get_extra_info("sockname")
        assert near.get_extra_info("sockname") == far.get_extra_info("peername")
        assert near.get_extra_info("nothing", 5) == 5
        sock = near.get_extra_info("socket")
        sock.setsockopt(6, 1, 1)
        assert sock.getsockopt(6, 1) == 1
        assert sock.getsockname() == near.get_extra_info("sockname")
        near.close()
        await there.lost
        server.close()
        await server.wait_closed()
        return server.is_serving()

    assert run(main) is False


def test_a_half_closed_connection_still_answers(run):
    async def main():
        server, there, here = await connect(lambda: Noted(keep_half_open=True))
        here.transport.write(b"question")
        assert here.transport.can_write_eof()
        here.transport.write_eof()
        with pytest.raises(RuntimeError):
            here.transport.write(b"more")
        await there.eof
        there.transport.write(b"answer")
        there.transport.close()
        await asyncio.gather(here.lost, there.lost)
        server.close()
        return here.data, there.data, here.calls, there.calls

    here, there, near, far = run(main)
    assert (here, there) == (b"answer", b"question")
    assert near == ["made", "data", "eof", "lost None"]
    assert far == ["made", "data", "eof", "lost None"]


def test_nothing_is_read_while_reading_is_paused(run):
    async def main():
        server, there, here = await connect()
        there.transport.pause_reading()
        assert not there.transport.is_reading()
        here.transport.write(b"x" * 1000)
        await asyncio.sleep(0.005)
        before = there.data
        there.transport.resume_reading()
        assert there.transport.is_reading()
        await there.got.wait()
        here.transport.close()
        await there.lost
        server.close()
        return before, len(there.data)

    assert run(main) == (b"", 1000)


def test_abort_ends_both_ends(run):
    async def main():
        server, there, here = await connect()
        here.transport.write(b"x")
        await there.got.wait()
        here.transport.abort()
        here.transport.abort()
        await asyncio.gather(here.lost, there.lost)
        server.close()
        return here.calls, there.calls[-1]

    assert run(main) == (["made", "lost None"], "lost None")


def test_a_buffered_protocol_gets_everything(run):
    async def main():
        server, there, here = await connect(Buffered)
        here.transport.write(bytes(range(256)) * 40)
        here.transport.close()
        await there.lost
        server.close()
        return there.data

    assert run(main) == bytes(range(256)) * 40


def test_writing_is_paused_while_the_peer_does_not_read(run):
    size = 16 * 1024 * 1024

    async def main():
        server, there, here = await connect()
        there.transport.pause_reading()
        here.transport.set_write_buffer_limits(high=100_000, low=10_000)
        assert here.transport.get_write_buffer_limits() == (10_000, 100_000)
        piece = bytes(1024 * 1024)
        for _ in range(size // len(piece)):
            here.transport.write(piece)
        waiting = here.transport.get_write_buffer_size()
        paused = list(here.calls)
        there.transport.resume_reading()
        here.transport.close()
        await asyncio.gather(here.lost, there.lost)
        server.close()
        return waiting > 100_000, paused, len(there.data)

    assert run(main) == (True, ["made", "pause"], size)


def test_writing_goes_on_when_the_peer_reads(run):
    async def main():
        server, there, here = await connect()
        there.transport.pause_reading()
        for _ in range(32):
            here.transport.write(bytes(1024 * 1024))
        there.transport.resume_reading()
        while "resume" not in here.calls:
            await asyncio.sleep(0.001)
        here.transport.abort()
        await asyncio.gather(here.lost, there.lost)
        server.close()
        return here.calls

    assert run(main) == ["made", "pause", "resume", "lost None"]


def test_nobody_listens(run):
    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="in use") as in_use:
            await loop.create_server(asyncio.Protocol, "127.0.0.1", port)
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        again = await loop.create_server(asyncio.Protocol, "127.0.0.1", port)
        again.close()
        return in_use.value.errno

    assert run(main) == errno.EADDRINUSE


def test_who_has_a_port_and_does_not_serve_takes_no_connection(run):
    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, start_serving=False)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        await server.start_serving()
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(asyncio.Protocol, "127.0.0.1", port, start_serving=False)
        transport.close()
        server.close()
        return server.is_serving()

    assert run(main) is False


def test_streams_work(run):
    async def main():
        async def serve(reader, writer):
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        return answer

    assert run(main) == b"HELLO\n"
