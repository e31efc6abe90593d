"""What generators, the interpreter and clients exchange: operations, events, the context.

Pure; all times are nanoseconds of the run's monotonic clock, given from outside.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An operation to invoke: what (``f``), with which arguments, by whom, and not before when."""

    f: str
    value: Mapping[str, object] = field(default_factory=dict)
    process: int = -1
    time_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to an operation; ``type`` is invoke, ok, fail or info."""

    type: str
    f: str
    process: int
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a generator may know: the time and which logical processes are free."""

    time_ns: int
    free: tuple[int, ...]
    busy_count: int = 0


class Pending(Enum):
    """The answer of a generator that has nothing now but may have later."""

    PENDING = "pending"


PENDING = Pending.PENDING
Step = tuple[Op | Pending, "Generator"]


class Generator(Protocol):
    """A pure source of operations. Both methods return new values and change nothing."""

    def op(self, ctx: Context) -> Step | None:
        """Return the next operation and the generator after it; None when exhausted."""
        ...

    def update(self, ctx: Context, event: Event) -> "Generator":
        """Return the generator that knows of ``event``."""
        ...
