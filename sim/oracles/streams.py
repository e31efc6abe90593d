"""The streams between a master and its slaves: what there is flows, to who is to have it.

What goes wrong here is put right by the next message, or the next connection, so that it shows
only if nothing comes any more at the wrong moment. Therefore each stream is judged by what both
ends know of it:

- a slave that takes bytes again is sent the rest, though nobody sends another message;
- a slave asks for something that it has, and compares that: two logs that end at one place may be
  different ones;
- what counts as confirmed by a slave that controllers may elect it has told over this connection:
  it may have lost what it confirmed before.

Source: docs/replication.md; RocketMQ DefaultHAConnection, DefaultHAClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.controller import BrokerController

SILENT: Final = "A41 slave that is not sent the rest"
BLIND: Final = "A34 slave that compares nothing"
LOOKS: Final = 3
"""It is so if it is found at so many looks in a row, while nothing holds the process up."""


class Streams:
    """Looks at the ends of streams now and then.

    Args:
        is_held_up: whether a host stands still, or waits for its disk.
    """

    def __init__(self, is_held_up: Callable[[str], bool], count: Callable[[str], None]) -> None:
        self._is_held_up = is_held_up
        self._count = count
        self._found: dict[str, tuple[object, int]] = {}
        """By broker, what was idle at the last look, and at how many in a row."""

    def look(self, brokers: Iterable[tuple[str, BrokerController]]) -> None:
        """Look at those that serve. Errors: `Violation`."""
        for name, controller in brokers:
            ha: Any = getattr(controller._mode, "_ha", None)
            if hasattr(ha, "_links"):
                self._look_at_master(name, ha)
            elif ha is not None:
                self._look_at_slave(name, ha)

    def _look_at_master(self, name: str, ha: Any) -> None:  # noqa: ANN401  # of either kind
        end = ha.log.own_position
        late = [link for link in ha._links if _is_idle(link) and link._next < end]
        self._count("streams_looked_at")
        what = tuple((id(link), link._next) for link in late)
        if self._lasts(name, what):
            link = late[0]
            raise Violation(
                SILENT, f"{name} has sent {link.remote} all up to {link._next}, takes up nothing "
                f"more, and has {end}", node=name,
            )  # fmt: skip

    def _look_at_slave(self, name: str, ha: Any) -> None:  # noqa: ANN401  # likewise
        link = ha._link
        transport = getattr(link, "_transport", None)
        is_open = transport is not None and not transport.is_closing()
        if not is_open:
            return
        asked, known = link._intake.first_report, link._intake._known_end
        if 0 < known <= asked:
            text = f"{name} asks for what lies from {asked} on, and its log ends at {known}"
            raise Violation(BLIND, text, node=name)

    def _lasts(self, name: str, what: tuple[object, ...]) -> bool:
        """Note what is idle at this look; tell whether it has been for some looks."""
        before, looks = self._found.get(name, ((), 0))
        if not what or self._is_held_up(name):
            what, looks = (), 0
        else:
            looks = looks + 1 if what == before else 1
        self._found[name] = what, looks
        return looks >= LOOKS


def _is_idle(link: Any) -> bool:  # noqa: ANN401  # of a slave, of either kind
    """Tell whether a master would send this slave something, and has nothing under way for that."""
    transport = link._transport
    is_open = transport is not None and not transport.is_closing()
    return is_open and link.position is not None and not link._paused and not link._scheduled
