"""The streams between a master and its slaves: what there is flows, to who is to have it.

What goes wrong here is put right by the next message, or the next connection, so that it shows
only if nothing comes any more at the wrong moment. Therefore each stream is judged by what both
ends know of it:

- a slave that takes bytes again is sent the rest, though nobody sends another message;
- a slave asks for something that it has, and compares that: two logs that end at one place may be
  different ones;
- what the whole in-sync set has, or a slave of a synchronous master, counts, though nobody reports
  again;
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
BEHIND: Final = "A41 counts less than all of them have"
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
                self._look_at_counted(name, ha)
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

    def _look_at_counted(self, name: str, ha: Any) -> None:  # noqa: ANN401  # likewise
        """What a master counts has gone as far as those are that it waits for."""
        log, limit = ha.log, _held_by_all(ha)
        behind = (log.committed_position, limit) if log.committed_position < limit else ()
        if self._lasts(f"{name} counts", behind, name):
            text = f"{name} counts {log.committed_position}, and all that it waits for have {limit}"
            raise Violation(BEHIND, text, node=name)

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

    def _lasts(self, key: str, what: tuple[object, ...], name: str = "") -> bool:
        """Note what is idle at this look; tell whether it has been for some looks."""
        before, looks = self._found.get(key, ((), 0))
        if not what or self._is_held_up(name or key):
            what, looks = (), 0
        else:
            looks = looks + 1 if what == before else 1
        self._found[key] = what, looks
        return looks >= LOOKS


def _held_by_all(ha: Any) -> int:  # noqa: ANN401  # of either kind
    """Return up to where a log is held by its master and by all for whom that waits."""
    own: int = ha.log.own_position
    told: dict[Any, int] = {one: one.position for one in ha._links if one.is_confirming}
    in_sync, gate = getattr(ha, "_in_sync", None), ha.log._gate
    if in_sync is not None:
        members = in_sync.members
        if not in_sync.is_open or len(members) < in_sync.count_min or in_sync.own_id not in members:
            return 0
        by_id = {link.slave_id: position for link, position in told.items()}
        waits = (members | in_sync._pending) - {in_sync.own_id}
        return min([own, *(by_id.get(one, 0) for one in waits)])
    released: int = 0 if gate is None else gate.released
    if gate is not None and told and ha.log.end_position - max(told.values()) < gate.behind_max:
        return min(own, max(*told.values(), released))
    return own


def _is_idle(link: Any) -> bool:  # noqa: ANN401  # of a slave, of either kind
    """Tell whether a master would send this slave something, and has nothing under way for that."""
    transport = link._transport
    is_open = transport is not None and not transport.is_closing()
    return is_open and link.position is not None and not link._paused and not link._scheduled
