"""The generators: a source of equal operations, a script, and what limits, paces and joins them.

Pure. Each class is a frozen value; ``op`` returns the successor. Source: Jepsen's generator
(mix, stagger, limit, time-limit, phases).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from chaos.generator.model import PENDING, Context, Event, Generator, Op, Step
from chaos.generator.streams import Stream

SECOND_NS = 1_000_000_000
CATCH_UP_NS = 50_000_000


def constant(**value: object) -> Callable[[int], Mapping[str, object]]:
    """Return what `Emit` takes to give every operation the same arguments."""
    return lambda _: value


@dataclass(frozen=True, slots=True)
class Emit:
    """An endless source: operation ``f`` whose arguments are made from a counter."""

    f: str
    make: Callable[[int], Mapping[str, object]]
    count: int = 0

    def op(self, ctx: Context) -> Step | None:
        """Return the next operation for the first free process."""
        if not ctx.free:
            return PENDING, self
        op = Op(f=self.f, value=self.make(self.count), process=ctx.free[0], time_ns=ctx.time_ns)
        return op, Emit(self.f, self.make, self.count + 1)

    def update(self, ctx: Context, event: Event) -> Generator:
        """Ignore the event."""
        return self


@dataclass(frozen=True, slots=True)
class Script:
    """Operations in order, each ``delay_ns`` after the completion of the one before it.

    The first one's delay counts from ``since_ns``.
    """

    steps: tuple[tuple[int, Op], ...]
    since_ns: int = 0

    def op(self, ctx: Context) -> Step | None:
        """Return the next step, not before its time; one at a time."""
        if not self.steps:
            return None
        if not ctx.free or ctx.busy_count:
            return PENDING, self
        delay_ns, op = self.steps[0]
        due_ns = max(ctx.time_ns, self.since_ns + delay_ns)
        return replace(op, process=ctx.free[0], time_ns=due_ns), Script(self.steps[1:])

    def update(self, ctx: Context, event: Event) -> Generator:
        """Count the delay of the next step from a completion."""
        if event.type == "invoke":
            return self
        return Script(self.steps, event.time_ns)


@dataclass(frozen=True, slots=True)
class Mix:
    """One of several generators at each step, by weight; ends when all have ended."""

    parts: tuple[tuple[int, Generator], ...]
    stream: Stream
    count: int = 0

    def op(self, ctx: Context) -> Step | None:
        """Return an operation of the part drawn; parts that end are dropped."""
        parts = self.parts
        while parts:
            total = sum(weight for weight, _ in parts)
            at = self._pick(parts, self.stream.randint(self.count, 0, total - 1))
            step = parts[at][1].op(ctx)
            if step is None:
                parts = parts[:at] + parts[at + 1 :]
                continue
            op, after = step
            parts = (*parts[:at], (parts[at][0], after), *parts[at + 1 :])
            return op, Mix(parts, self.stream, self.count + (op is not PENDING))
        return None

    @staticmethod
    def _pick(parts: tuple[tuple[int, Generator], ...], draw: int) -> int:
        for at, (weight, _) in enumerate(parts):
            if draw < weight:
                return at
            draw -= weight
        raise AssertionError(draw)

    def update(self, ctx: Context, event: Event) -> Generator:
        """Tell every part."""
        parts = [(weight, part.update(ctx, event)) for weight, part in self.parts]
        for new, old in zip(parts, self.parts, strict=True):
            if new[1] is not old[1]:
                return Mix(tuple(parts), self.stream, self.count)
        return self


@dataclass(frozen=True, slots=True)
class Stagger:
    """Spaces operations: the gap is uniform in 0..2x the mean, so ``per_second`` on average.

    What comes late by up to `CATCH_UP_NS` is made up for, since a loop wakes by the millisecond; a
    source that falls further behind (no free process) does not do so with a burst.
    """

    per_second: float
    source: Generator
    stream: Stream
    next_ns: int = 0
    count: int = 0

    def op(self, ctx: Context) -> Step | None:
        """Return the source's operation, not before its turn."""
        step = self.source.op(ctx)
        if step is None or step[0] is PENDING:
            return step if step is None else (PENDING, replace(self, source=step[1]))
        op, after = step
        assert isinstance(op, Op)
        late_ns = CATCH_UP_NS if self.count else 0
        due_ns = max(op.time_ns - late_ns, self.next_ns)
        gap_ns = int(2 * self.stream.random(self.count) / self.per_second * SECOND_NS)
        nxt = Stagger(self.per_second, after, self.stream, due_ns + gap_ns, self.count + 1)
        return Op(f=op.f, value=op.value, process=op.process, time_ns=due_ns), nxt

    def update(self, ctx: Context, event: Event) -> Generator:
        """Tell the source."""
        told = self.source.update(ctx, event)
        return self if told is self.source else replace(self, source=told)


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``count`` operations of the source."""

    count: int
    source: Generator

    def op(self, ctx: Context) -> Step | None:
        """Return the source's operation while any is left."""
        if self.count <= 0:
            return None
        step = self.source.op(ctx)
        if step is None:
            return None
        op, after = step
        return op, Limit(self.count - (op is not PENDING), after)

    def update(self, ctx: Context, event: Event) -> Generator:
        """Tell the source."""
        return Limit(self.count, self.source.update(ctx, event))


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Ends ``duration_ns`` after it was first asked."""

    duration_ns: int
    source: Generator
    end_ns: int | None = None

    def op(self, ctx: Context) -> Step | None:
        """Return the source's operation if its time is before the end."""
        end_ns = ctx.time_ns + self.duration_ns if self.end_ns is None else self.end_ns
        if ctx.time_ns >= end_ns:
            return None
        step = self.source.op(ctx)
        if step is None:
            return None
        op, after = step
        if isinstance(op, Op) and op.time_ns >= end_ns:
            return None
        return op, TimeLimit(self.duration_ns, after, end_ns)

    def update(self, ctx: Context, event: Event) -> Generator:
        """Tell the source."""
        told = self.source.update(ctx, event)
        return self if told is self.source else replace(self, source=told)


@dataclass(frozen=True, slots=True)
class Phases:
    """One generator after another; the next begins when nothing of the last is in flight."""

    parts: tuple[Generator, ...]

    def op(self, ctx: Context) -> Step | None:
        """Return an operation of the current phase."""
        parts = self.parts
        while parts:
            step = parts[0].op(ctx)
            if step is not None:
                return step[0], Phases((step[1], *parts[1:]))
            if ctx.busy_count and len(parts) > 1:
                return PENDING, Phases(parts)
            parts = parts[1:]
        return None

    def update(self, ctx: Context, event: Event) -> Generator:
        """Tell the current phase."""
        if not self.parts:
            return self
        return Phases((self.parts[0].update(ctx, event), *self.parts[1:]))
