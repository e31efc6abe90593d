"""Faults of processes: P1 to P8. Source: spec/proof.md 2."""

from typing import Final

from chaos.catalogue.kinds import FaultEntry, Target

_GONE: Final = "process gone, then another boot"
_START: Final = "it is started again"
_SILENT: Final = "none of them answers, then all do"

KINDS: Final = (
    FaultEntry(
        ids=("P1",), kind="proc.kill", title="killed; the page cache stays", target=Target.BROKER,
        witness=_GONE, undo=_START, nemesis="kill", simulator="crash",
    ),
    FaultEntry(
        ids=("P5",), kind="proc.ambush",
        title="something happens to it just as its code waits where it seldom does",
        target=Target.BROKER, witness="it waited there", undo="as of what happens",
        simulator="ambush", lacks="a look at where a process waits",
    ),
    FaultEntry(
        ids=("P1",), kind="namesrv.kill", title="a name server is killed", target=Target.NAMESRV,
        witness=_SILENT, undo=_START, simulator="namesrv_crash", nemesis="namesrv_kill",
    ),
    FaultEntry(
        ids=("P1",), kind="namesrv.turn",
        title="a broker is killed while a name server cannot be told who leads next",
        target=Target.BROKER, witness=_GONE, undo=_START, simulator="namesrv_turn",
        lacks="a kind of its own; a scenario kills a leader beside `namesrv_pause`",
    ),
    FaultEntry(
        ids=("P3",), kind="namesrv.pause", title="a name server stands still",
        target=Target.NAMESRV, witness=_SILENT, undo="it goes on",
        simulator="namesrv_pause", nemesis="namesrv_pause",
    ),
    FaultEntry(
        ids=("P1",), kind="controller.kill",
        title="a name server is killed with its controller, the one that leads first",
        target=Target.CONTROLLERS, witness=_SILENT, undo=_START,
        nemesis="controller_kill", needs="controllers",
    ),
    FaultEntry(
        ids=("P3",), kind="controller.pause",
        title="name servers stand still with their controllers; by default two of three",
        target=Target.CONTROLLERS, witness=_SILENT, undo="they go on",
        nemesis="controller_pause", needs="controllers",
    ),
    FaultEntry(
        ids=("P2",), kind="proc.stop", title="asked to end", target=Target.BROKER, witness=_GONE,
        undo=_START, simulator="stop",
        nemesis="stop",
    ),
    FaultEntry(
        ids=("P2",), kind="proc.stop_and",
        title="asked to end, and killed or trimmed a moment after the next start",
        target=Target.BROKER, witness=_GONE, undo=_START, simulator="stop_and",
        lacks="a fault that acts again while it is on",
    ),
    FaultEntry(
        ids=("P2",), kind="proc.crash_loop", title="killed, started and killed again",
        target=Target.BROKER, witness=_GONE, undo=_START, simulator="crash_loop",
        nemesis="crash_loop",
    ),
    FaultEntry(
        ids=("P2",), kind="proc.rolling",
        title="one after the other is asked to end, and comes again",
        target=Target.BROKERS, witness=_GONE, undo="each is started before the next ends",
        nemesis="rolling",
    ),
    FaultEntry(
        ids=("P2",), kind="proc.restart_all", title="all end at once", target=Target.BROKERS,
        witness=_GONE, undo="they are started again", simulator="restart_all",
        nemesis="restart_all",
    ),
    FaultEntry(
        ids=("P3", "P4"), kind="proc.pause",
        title="stands still, also for longer than an election timeout",
        target=Target.BROKER, witness="stopped, silent, then back", undo="it goes on",
        nemesis="pause", simulator="pause",
    ),
    FaultEntry(
        ids=("P5",), kind="proc.crash_at", title="ends at a named step of its disk",
        target=Target.BROKER, witness="that step was its last", undo=_START, simulator="crash_at",
        needs="a C compiler", nemesis="crash_at",
    ),
    FaultEntry(
        ids=("P6",), kind="proc.starve",
        title="little processor time: it stands still for a share of each period",
        target=Target.BROKER, witness="answers take longer", undo="it goes on",
        nemesis="starve",
    ),
    FaultEntry(
        ids=("P6",), kind="proc.descriptors", title="no more files and connections than are open",
        target=Target.BROKER, witness="no connection is served, then one is by the same boot",
        undo="the limit is lifted", nemesis="descriptors",
        logs=("resource",),
    ),
    FaultEntry(
        ids=("P7",), kind="client.kill",
        title="before the answer, or after delivery and before the commit",
        target=Target.CLIENT, witness="the process is gone, and another works in the end",
        undo="another takes its place",
        simulator="client_crash",
        nemesis="client_kill",
    ),
    FaultEntry(
        ids=("P8",), kind="proc.versions", title="members of different versions",
        target=Target.BROKER, witness="versions in the statuses", undo="all get the same version",
        lacks="two builds",
    ),
)  # fmt: skip
"""All kinds."""
