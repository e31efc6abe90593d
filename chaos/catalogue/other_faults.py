"""Faults of clocks, of the group, and of its load: T1 to T3, C1 to C4. Source: spec/proof.md 2."""

from typing import Final

from chaos.catalogue.kinds import FaultEntry, Target

_COMPILER: Final = "a C compiler"

KINDS: Final = (
    FaultEntry(
        ids=("T1",), kind="clock.jump", title="the wall clock jumps", target=Target.BROKER,
        witness="wrong times told, and none afterwards", undo="it is set right",
        simulator="clock_jump", needs=_COMPILER, nemesis="clock_jump",
        moves_clock=True, recorded=("clock.jump",),
    ),
    FaultEntry(
        ids=("T1",), kind="clock.strobe", title="the wall clock jumps to and fro",
        target=Target.BROKER, witness="wrong times told, and none afterwards",
        undo="it is set right",
        simulator="clock_strobe", needs=_COMPILER, nemesis="clock_strobe",
        moves_clock=True, recorded=("clock.strobe",),
    ),
    FaultEntry(
        ids=("T2",), kind="clock.drift", title="all clocks go at another speed",
        target=Target.BROKER, witness="wrong times told, and none afterwards",
        undo="they go as before",
        simulator="clock_drift", needs=_COMPILER, nemesis="clock_drift",
        moves_clock=True, recorded=("clock.drift",),
    ),
    FaultEntry(
        ids=("T3",), kind="clock.origin", title="the monotonic clock begins elsewhere",
        target=Target.BROKER, witness="the clock of the process", undo="at the next start",
        lacks="a start in a time namespace", needs="user namespaces",
    ),
    FaultEntry(
        ids=("C1",), kind="group.add", title="a member is added", target=Target.GROUP,
        witness="configurations in the log", undo="nothing: it stays", simulator="add",
        lacks="a spare broker; `remove_member` adds again whom it removed",
    ),
    FaultEntry(
        ids=("C1",), kind="group.remove", title="a member is removed", target=Target.GROUP,
        witness="the voters that the leader names", undo="it is added again", simulator="remove",
        nemesis="remove_member",
    ),
    FaultEntry(
        ids=("C1",), kind="group.replace", title="a member is replaced", target=Target.GROUP,
        witness="configurations in the log", undo="nothing: it stays", simulator="replace",
        lacks="a spare broker",
    ),
    FaultEntry(
        ids=("C2",), kind="group.transfer", title="leadership is handed over",
        target=Target.GROUP, witness="another leads", undo="nothing: it stays",
        simulator="transfer", nemesis="transfer",
    ),
    FaultEntry(
        ids=("C3",), kind="client.leave", title="consumers come and go", target=Target.CLIENT,
        witness="newcomers got messages and left, and the others are there still",
        undo="the last newcomer leaves", simulator="client_leave", nemesis="rebalance_storm",
    ),
    FaultEntry(
        ids=("C4",), kind="load.retention", title="snapshots, retention and backlog under faults",
        target=Target.LOAD, witness="a log that begins later", undo="nothing",
        nemesis="trim", logs=("removed",),
    ),
)  # fmt: skip
"""All kinds."""
