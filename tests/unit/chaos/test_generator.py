"""Generators in a simulated context: time passes as told, every operation takes a fixed time."""

from itertools import pairwise

from chaos.generator import (
    PENDING,
    Context,
    Emit,
    Event,
    Generator,
    Limit,
    Mix,
    Op,
    Phases,
    Script,
    Stagger,
    Stream,
    TimeLimit,
    constant,
)

STREAM = Stream(7, "test")


def simulate(
    gen: Generator, *, processes: int = 2, latency: int = 10
) -> list[tuple[int, int, str]]:
    """Run a generator to its end; return (time, process, f) of each invocation."""
    now, free = 0, list(range(processes))
    busy: list[tuple[int, Op]] = []
    log: list[tuple[int, int, str]] = []
    for _ in range(10_000):
        step = gen.op(Context(time_ns=now, free=tuple(free), busy_count=len(busy)))
        if step is None and not busy:
            return log
        if step is not None and isinstance(step[0], Op) and step[0].time_ns <= now:
            op, gen = step
            free.remove(op.process)
            busy.append((now + latency, op))
            log.append((now, op.process, op.f))
            gen = gen.update(
                Context(time_ns=now, free=tuple(free)),
                Event(type="invoke", f=op.f, process=op.process, time_ns=now),
            )
            continue
        wake = [end for end, _ in busy]
        if step is not None and isinstance(step[0], Op):
            wake.append(step[0].time_ns)
        now = min(wake)
        for end, op in [item for item in busy if item[0] <= now]:
            busy.remove((end, op))
            free.append(op.process)
            gen = gen.update(
                Context(time_ns=now, free=tuple(free)),
                Event(type="ok", f=op.f, process=op.process, time_ns=now),
            )
    raise AssertionError("the generator does not end")


def source(f: str = "send") -> Emit:
    return Emit(f, constant())


def test_emit_needs_a_free_process():
    assert source().op(Context(time_ns=0, free=()))[0] is PENDING


def test_limit_counts_operations_only():
    log = simulate(Limit(5, source()), processes=2)
    assert len(log) == 5
    assert max(time for time, _, _ in log) == 20


def test_no_process_has_two_operations_in_flight():
    log = simulate(Limit(20, source()), processes=3, latency=10)
    by_process: dict[int, list[int]] = {}
    for time, process, _ in log:
        by_process.setdefault(process, []).append(time)
    for times in by_process.values():
        assert all(b - a >= 10 for a, b in pairwise(times))


def test_stagger_keeps_the_mean_rate():
    per_second = 100.0
    paced = Limit(500, Stagger(per_second, source(), STREAM))
    log = simulate(paced, processes=50, latency=1_000_000)
    seconds = log[-1][0] / 1e9
    assert 0.9 * per_second < len(log) / seconds < 1.1 * per_second


def test_time_limit_ends_before_its_end():
    paced = Stagger(1000.0, source(), STREAM)
    log = simulate(TimeLimit(50_000_000, paced), processes=50, latency=1000)
    assert log
    assert max(time for time, _, _ in log) < 50_000_000


def test_phases_wait_for_what_is_in_flight():
    log = simulate(Phases((Limit(3, source("a")), Limit(2, source("b")))), processes=3, latency=10)
    assert [f for _, _, f in log] == ["a", "a", "a", "b", "b"]
    assert min(time for time, _, f in log if f == "b") == 10


def test_script_counts_delays_from_completions():
    steps = tuple((delay, Op(f=name)) for delay, name in ((5, "kill"), (7, "restart"), (0, "look")))
    log = simulate(Script(steps), processes=1, latency=100)
    assert log == [(5, 0, "kill"), (112, 0, "restart"), (212, 0, "look")]


def test_mix_draws_by_weight_and_ends_with_its_parts():
    parts = ((9, Limit(900, source("a"))), (1, Limit(100, source("b"))))
    log = simulate(Mix(parts, STREAM), processes=1, latency=1)
    first = [f for _, _, f in log[:300]]
    assert 230 < first.count("a") < 299
    assert len(log) == 1000


def test_equal_seeds_give_equal_plans():
    def plan(seed: int) -> list[tuple[int, int, str]]:
        return simulate(Limit(50, Stagger(10.0, source(), Stream(seed, "x"))), latency=1)

    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_streams_of_other_names_are_independent():
    root = Stream(1, "root")
    assert root.split("a").u64(0) != root.split("b").u64(0)
    assert root.split("a").u64(3) == Stream(1, "root/a").u64(3)
    assert all(0 <= root.random(n) < 1 for n in range(100))
    assert {root.randint(n, 3, 5) for n in range(100)} == {3, 4, 5}


def invoked_by_a_loop_that_wakes_late(late_ns: int, seconds: int = 1) -> int:
    """Return how many operations of 1,000 a second are invoked if each wake-up comes late."""
    gen: Generator = Stagger(1_000, source(), STREAM)
    now = count = 0
    while now < seconds * 10**9:
        step = gen.op(Context(time_ns=now, free=(0,)))
        assert step is not None
        assert isinstance(step[0], Op)
        if step[0].time_ns > now:
            now = step[0].time_ns + late_ns
            continue
        gen, count = step[1], count + 1
    return count


def test_what_comes_a_little_late_is_made_up_for_and_what_comes_much_later_is_not():
    assert 950 <= invoked_by_a_loop_that_wakes_late(5 * 10**6) <= 1_050
    assert invoked_by_a_loop_that_wakes_late(200 * 10**6) < 400
