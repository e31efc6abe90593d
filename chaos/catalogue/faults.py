"""The catalogue of faults: one entry for each kind, and what names in histories stand for.

The harness on processes, the simulator and both checkers take their words from here: the nemesis
which kinds there are, the simulator which of them disturb a broker, the checkers what a fault that
took effect excuses. Pure lookups over the entries of its neighbours.

Source: spec/proof.md 2, 4.3 (contract).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from chaos.catalogue import disk_faults, link_faults, other_faults, process_faults
from chaos.catalogue.kinds import FaultEntry, Takes

FAULTS: Final = (
    *link_faults.KINDS, *process_faults.KINDS, *disk_faults.KINDS, *other_faults.KINDS,
)  # fmt: skip
"""Every kind, in the order of the ids."""
BY_NEMESIS: Final[Mapping[str, FaultEntry]] = {one.nemesis: one for one in FAULTS if one.nemesis}
"""The kinds that the harness on processes has, by their names in histories."""
BY_SIMULATOR: Final[Mapping[str, FaultEntry]] = {
    one.simulator: one for one in FAULTS if one.simulator
}
"""The kinds that the simulator has, by their names in plans."""
ENDS_PROCESS: Final = frozenset({"proc.kill", "proc.stop"})
"""Kinds after whose beginning a broker says nothing, and comes again as one that leads nobody."""
GETS_NOTHING: Final = ENDS_PROCESS | {"proc.pause"}
"""Kinds from whose beginning until they are lifted a broker gets nothing."""
CUTS_LINK: Final = "net.bridge"
CHANGES_GROUP: Final = frozenset({"group.add", "group.remove", "group.replace"})
"""Kinds during which fewer or more members than run.json names decide."""
LEAVES_PROCESS: Final = ("net.", "clock.", "client.", "load.")
"""How kinds are called that neither end nor start a broker."""
ANY: Final = "any"
"""In the coverage of a run: faults of all kinds together."""
BY_KIND: Final[Mapping[str, FaultEntry]] = {one.kind: one for one in FAULTS}
"""Every kind by its own name, as the catalogue is printed."""


@cache
def find(name: str) -> FaultEntry | None:
    """Return the kind of a fault in a history, ours or another's; None if nobody knows it.

    By its name in the harness or here; else the name, or what follows its first dot
    (``node.wipe``), begins with a name that the kind has in others' histories: the longest counts.
    """
    known = BY_NEMESIS.get(name) or BY_KIND.get(name)
    if known is not None:
        return known
    spelled = (name, name.partition(".")[2])
    found = [
        (len(begin), kind)
        for kind in FAULTS
        for begin in kind.recorded
        if any(text.startswith(begin) for text in spelled)
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def takes(name: str | None) -> Takes:
    """Return what a fault of a history takes from its node."""
    kind = find(name or "")
    return Takes.NOTHING if kind is None else kind.takes


def spoils_log(name: str | None) -> bool:
    """Tell whether a fault of a history excuses damage in its node's log."""
    kind = find(name or "")
    return kind is not None and kind.spoils


def forgets(name: str | None) -> bool:
    """Tell whether a fault of a history excuses that its node forgot its term and votes."""
    kind = find(name or "")
    return kind is not None and kind.forgets


class Span(NamedTuple):
    """When a fault of a history was in force; ``end`` None: until the end of the run."""

    kind: str | None
    targets: Sequence[str]
    begin: int
    end: int | None


def took_nothing(fault: Span, others: Iterable[Span], only_there: int | None = None) -> bool:
    """Tell whether a fault needs a loss of power to take anything, and none was among others.

    Or whether its calls failed and took nothing, as whoever witnessed it knew (``only_there`` 0):
    what was written before stays, though a kernel may drop it elsewhere.
    """
    kind = find(fault.kind or "")
    if kind is None or not kind.only_with_power_loss:
        return kind is not None and _kept_all(kind, only_there)
    return not any(_loses_power(fault, one) for one in others)


def _kept_all(kind: FaultEntry, only_there: int | None) -> bool:
    return kind.takes is Takes.UNSYNCED and not kind.is_power_loss and only_there == 0


def _loses_power(during: Span, one: Span) -> bool:
    """Tell whether a fault is a loss of power of a node during another fault of it."""
    kind = find(one.kind or "")
    return (
        kind is not None
        and kind.is_power_loss
        and not set(during.targets).isdisjoint(one.targets)
        and (one.end is None or during.begin <= one.end)
        and (during.end is None or one.begin <= during.end)
    )


def that_may_take(kinds: Collection[str]) -> list[str]:
    """Return those of a plan's kinds that may take anything beside the others.

    What takes nothing without a loss of power does so only if the plan has one.
    """
    known = {name: find(name) for name in kinds}
    has_power_loss = any(kind is not None and kind.is_power_loss for kind in known.values())
    return [
        name
        for name, kind in known.items()
        if has_power_loss or kind is None or not kind.only_with_power_loss
    ]


def moves_clock(name: str | None) -> bool:
    """Tell whether a fault of a history excuses what comes before its time."""
    kind = find(name or "")
    return kind is not None and kind.moves_clock


def explains(name: str | None, logged: str) -> bool:
    """Tell whether a fault of a history may be why its node logs lines of a kind."""
    kind = find(name or "")
    return kind is not None and logged in kind.logs


def ends_process(name: str | None) -> bool:
    """Tell whether all that a fault of a history does is that its broker is gone until a start."""
    kind = find(name or "")
    return kind is not None and kind.kind in ENDS_PROCESS


def gets_nothing(name: str | None) -> bool:
    """Tell whether the broker that a fault of a history hits gets nothing until it is lifted."""
    kind = find(name or "")
    return kind is not None and kind.kind in GETS_NOTHING


def changes_group(name: str | None) -> bool:
    """Tell whether others than run.json names may decide amid a fault of a history."""
    kind = find(name or "")
    return kind is not None and kind.kind in CHANGES_GROUP


def may_start(name: str | None) -> bool:
    """Tell whether a broker may begin to run amid a fault that names it; of unknown kinds, too."""
    kind = find(name or "")
    return kind is None or not kind.kind.startswith(LEAVES_PROCESS)


def cuts_link(name: str | None) -> bool:
    """Tell whether nothing passes between the two brokers that a fault of a history names."""
    kind = find(name or "")
    return kind is not None and kind.kind == CUTS_LINK


def unsettles(name: str | None, targets: Collection[str], nodes: Collection[str]) -> bool:
    """Tell whether a fault of a history may be why brokers do something late, or once more.

    ``nodes``: the brokers whose names are known; a fault of others is one of another system. Empty:
    nobody said who they are.
    """
    kind = find(name or "")
    is_here = not targets or not nodes or any(target in nodes for target in targets)
    return kind is not None and kind.unsettles_brokers and is_here


def exceeds(name: str | None, flush: str) -> bool:
    """Tell whether a fault of a history takes what a flush of this mode promises to keep."""
    return takes(name).breaks(flush)
