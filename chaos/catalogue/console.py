"""The console on which verdicts are shown: what a run holds gives no orders to it.

A run may come from others. Its ids, names and reasons are quoted as evidence, and rich writes the
control characters of a text as they are: they could clear a verdict, or write another one over it.
CWE-150. Spelt here, and not where `ledgermq` does it: Spark's checker imports nothing of that.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ORDERS: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""All but line ends and tabs: controls, marks that turn or break lines, lone surrogates."""


class PlainConsole(Console):
    """A console without markup, emoji and colours of its own choice. Takes what `Console` takes."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - whatever rich knows
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Return the pieces of what is shown; orders that rich itself gives are kept."""
        return _spelt(super().render(renderable, options))


def _spelt(segments: Iterable[Segment]) -> Iterator[Segment]:
    for segment in segments:
        text, style, control = segment
        if control is None and _ORDERS.search(text):
            text = _ORDERS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
        yield Segment(text, style, control)
