"""Generators: pure values that say which operation comes next. They do no I/O and read no clock.

Source: Jepsen's generator (``op(context) -> op, generator'``; ``update`` on each event).
"""

from chaos.generator.combinators import (
    Emit,
    Limit,
    Mix,
    Phases,
    Script,
    Stagger,
    TimeLimit,
    constant,
)
from chaos.generator.model import PENDING, Context, Event, Generator, Op, Pending
from chaos.generator.streams import Stream

__all__ = [
    "PENDING",
    "Context",
    "Emit",
    "Event",
    "Generator",
    "Limit",
    "Mix",
    "Op",
    "Pending",
    "Phases",
    "Script",
    "Stagger",
    "Stream",
    "TimeLimit",
    "constant",
]
