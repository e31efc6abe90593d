"""The interpreter's loop: what it waits for, and what wakes it."""

import asyncio

import pytest

from chaos.generator import Emit, Limit, Op, Script, constant
from chaos.interpreter import Completion, Interpreter, Slots
from ledgermq.runtime.clock import SystemClock
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

FAR_NS = 3_600 * 10**9
SOON_S = 20
"""Far less than an hour, and more than a busy machine needs."""


class Rows:
    def __init__(self):
        self.types = []

    def write(self, table, row):
        self.write_all(table, [row])

    def write_all(self, table, rows):
        self.types += [row["type"] for row in rows]


class Client:
    """Ends each operation after ``seconds``."""

    def __init__(self, seconds=0.0, error=None):
        self.seconds, self.error = seconds, error

    def prepare(self, op):
        return {}

    async def invoke(self, op, prepared):
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return Completion(type="ok")


class OneNowOneFarOff:
    """One operation at once, the next in an hour."""

    def __init__(self, done=False):
        self.done = done

    def op(self, ctx):
        time_ns = ctx.time_ns + FAR_NS * self.done
        return Op(f="send", process=ctx.free[0], time_ns=time_ns), OneNowOneFarOff(done=True)

    def update(self, ctx, event):
        return self


def interpreter(client, rows, count=2, role="producer"):
    slots = Slots(worker=1, role=role, count=count, first_process=10)
    return Interpreter(client=client, recorder=rows, clock=SystemClock(), slots=slots)


def test_a_completion_is_on_record_long_before_the_next_operation_is_due():
    async def body():
        rows = Rows()
        made = interpreter(Client(0.01), rows)
        task = asyncio.create_task(made.run(OneNowOneFarOff()))
        async with asyncio.timeout(SOON_S):
            while len(rows.types) < 2:
                await asyncio.sleep(0.001)
            made.stop()
            await task
        return rows.types

    assert asyncio.run(body()) == ["invoke", "ok"]


@pytest.mark.parametrize("count", [1, 3])
def test_who_has_no_free_process_goes_on_with_the_first_that_ends(count):
    async def body():
        made = interpreter(Client(0.001), Rows(), count)
        async with asyncio.timeout(SOON_S):
            await made.run(Limit(40, Emit("send", constant())))
        return made.tally

    tally = asyncio.run(body())
    assert (tally.invoked, tally.ok) == (40, 40)


def test_after_a_stop_what_is_in_flight_ends_and_nothing_begins():
    async def body():
        made = interpreter(Client(0.05), Rows())
        task = asyncio.create_task(made.run(Emit("send", constant())))
        await asyncio.sleep(0.01)
        made.stop()
        async with asyncio.timeout(SOON_S):
            await task
        return made.tally

    tally = asyncio.run(body())
    assert tally.invoked == tally.ok == 2


@pytest.mark.parametrize(
    ("role", "lines"), [("producer", ["event=client_raised op=send"]), ("nemesis", [])]
)
def test_an_error_nobody_thought_of_leaves_the_outcome_unknown(role, lines, caplog):
    """The log of a client says so, with a traceback: A62. The nemesis is the harness's own."""

    async def body():
        made = interpreter(Client(error=RuntimeError("odd")), Rows(), role=role)
        async with asyncio.timeout(SOON_S):
            await made.run(Script(((0, Op(f="send")),)))
        return made.tally

    assert asyncio.run(body()).info == 1
    told = [one for one in caplog.records if one.name == "chaos.interpreter"]
    assert [one.getMessage() for one in told] == lines
    assert all(one.levelname == "ERROR" and one.exc_info for one in told)


class Unknown(Client):
    """Notes who sends; nobody knows how it ends."""

    def __init__(self):
        super().__init__()
        self.by = []

    async def invoke(self, op, prepared):
        self.by.append(op.process)
        return Completion(type="info")


def _processes(ids):
    """Return who sent eight times, where each send retires its process."""
    client = Unknown()
    slots = Slots(worker=1, role="producer", count=2, first_process=10, ids=ids)
    made = Interpreter(client=client, recorder=Rows(), clock=SystemClock(), slots=slots)
    asyncio.run(made.run(Limit(8, Emit("send", constant()))))
    return client.by


def test_a_worker_that_retires_many_processes_takes_no_id_of_the_next_one():
    assert sorted(_processes(ids=100)) == list(range(10, 18))
    assert _processes(ids=5) == [10, 11, 12, 13, 14, 10, 11, 12]  # the oldest come again


def test_ids_of_another_worker_are_seen():
    with planted(HARNESS_BUGS["processes-of-the-next-worker"]):
        assert max(_processes(ids=5)) >= 15


class Slow(Client):
    """Does something a moment after it was invoked, unless it is cancelled by then."""

    def __init__(self):
        super().__init__()
        self.done = 0

    async def invoke(self, op, prepared):
        await asyncio.sleep(0.05)
        self.done += 1
        return Completion(type="info")


async def _cut_short(client):
    made = interpreter(client, Rows(), role="nemesis", count=1)
    task = asyncio.create_task(made.run(Emit("start", constant())))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.1)
    return client.done, task.cancelled()


def test_what_is_in_flight_does_not_outlast_a_run_that_is_cut_short():
    """A timeline that takes too long: its last fault must not come once all are lifted."""
    assert asyncio.run(_cut_short(Slow())) == (0, True)


def test_a_step_that_outlasts_its_timeline_is_seen():
    with planted(HARNESS_BUGS["timeline-outlasted-by-a-step"]):
        assert asyncio.run(_cut_short(Slow())) == (1, True)


def test_an_operation_that_is_cancelled_inside_has_an_unknown_outcome(caplog):
    """A client library may cancel what it waits for; the record goes on, and A62 has a line."""

    async def body():
        made = interpreter(Client(error=asyncio.CancelledError()), Rows(), count=1)
        async with asyncio.timeout(SOON_S):
            await made.run(Limit(2, Emit("send", constant())))
        return made.tally

    tally = asyncio.run(body())
    assert (tally.invoked, tally.info) == (2, 2)
    assert any(one.name == "chaos.interpreter" for one in caplog.records)
