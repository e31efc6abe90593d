"""What the catalogues say of a kind of fault, of one fault as it is planned, and of a check.

Pure; knows no cluster, no plan and no history. Source: spec/proof.md 2, 3, 4.3 (contract).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Target(Enum):
    """What a fault is done to."""

    BROKER = "a broker"
    BROKERS = "all brokers"
    LINK = "links between brokers"
    CLIENT = "a client"
    NAMESRV = "a name server"
    CONTROLLERS = "controllers"
    GROUP = "the members of the group"
    LOAD = "the workload"


class Takes(Enum):
    """What a replica loses for good, of what it had acknowledged."""

    NOTHING = "nothing"
    UNSYNCED = "unsynced"
    """What was not synced yet: more than an asynchronous flush promises to keep."""
    SYNCED = "synced"
    """What was synced too: more than any flush promises to keep."""

    def breaks(self, flush: str) -> bool:
        """Tell whether this is more than a flush of this mode promises to keep."""
        is_sync = flush.lower().startswith("sync")
        return self is Takes.SYNCED or (self is Takes.UNSYNCED and not is_sync)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEntry:
    """One kind of fault.

    ``nemesis`` is its name in the harness and in the histories that it writes, ``simulator`` its
    name in plans; empty where it is not built, and then ``lacks`` says what the harness lacks.
    """

    ids: tuple[str, ...]
    """Of the rows of the catalogue in spec/proof.md 2."""
    kind: str
    title: str
    target: Target
    witness: str
    """What is seen if it took effect."""
    undo: str
    nemesis: str = ""
    simulator: str = ""
    lacks: str = ""
    needs: str = ""
    """What the machine must have for it, beyond starting processes."""
    recorded: tuple[str, ...] = ()
    """How the names begin under which other histories may have it."""
    takes: Takes = Takes.NOTHING
    spoils: bool = False
    """Whether the log of its node may be damaged, so that damage there is no anomaly."""
    logs: tuple[str, ...] = ()
    """Kinds of lines in the log of its node that it explains: `chaos.history.domains`."""
    met_by: str = ""
    """What the members make of it, where that is more than to go on."""
    moves_clock: bool = False
    """Whether wall clocks move by it, so that whatever waits may wait for too short a time."""
    forgets: bool = False
    """Whether its node may forget its term and votes, and what it had called committed."""

    only_with_power_loss: bool = False
    """Whether it takes nothing unless its node loses its power while it lasts."""
    reaches_brokers: bool = False
    """Whether it comes between brokers and others, though it is not done to brokers."""

    @property
    def is_power_loss(self) -> bool:
        """Whether its node comes back without what it had not synced."""
        return self.takes is Takes.UNSYNCED and self.spoils

    @property
    def counts(self) -> bool:
        """Whether its witness is a number of something; else it answers yes or no."""
        return self.kind.startswith("net.")

    @property
    def unsettles_brokers(self) -> bool:
        """Whether what brokers do for clients may come late, or twice, because of it."""
        of_brokers = {Target.BROKER, Target.BROKERS, Target.LINK, Target.GROUP}
        return self.reaches_brokers or self.target in of_brokers

    @property
    def disturbs_brokers(self) -> bool:
        """Whether it is done to brokers or to what lies between them."""
        return self.target not in {Target.CLIENT, Target.NAMESRV, Target.LOAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One fault as it is planned, whoever carries it out."""

    kind: FaultEntry
    target: tuple[str, ...]
    """Roles or names, in the order that the kind asks for."""
    hold_ms: int | None = None
    """How long it lasts; None: until a later step of the plan lifts it."""
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)

    def __str__(self) -> str:
        hold = "" if self.hold_ms is None else f" for {self.hold_ms} ms"
        more = "".join(f" {name}={value}" for name, value in self.parameters.items())
        return f"{self.kind.kind} of {', '.join(self.target)}{hold}{more}"


CRIT, MAJOR, MINOR, INFO = "CRIT", "MAJOR", "MINOR", "INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEntry:
    """One check: a question to a history, or to a simulated cluster, by whoever answers it."""

    id: str
    title: str
    """What an anomaly is called, or what holds where there is none."""
    question: str
    severity: str
    """CRIT and MAJOR make a run invalid, MINOR exceeds the contract, INFO is told."""
    needs: str = ""
    """Tables without which it cannot be answered."""
    weighs: str = ""
    """Tables, and members of run.json, by which what it finds is explained, or what is owed is
    known: where one of them was refused it would find too much, or too little."""
    in_process: bool = False
    on_spark: bool = False
    simulated: bool = False
    """Whether an oracle of the simulator asks it, of the cluster itself."""
    excusable: bool = False
    """Whether it finds what is brought about when disks are lost that had what was acknowledged."""
    lacks: str = ""
    """What the checkers lack to ask it of a history."""
    asked_as: tuple[str, ...] = ()
    """The checks that ask of a history what comes nearest to it, where itself cannot be asked."""
