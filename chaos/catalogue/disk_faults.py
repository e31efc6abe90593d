"""Faults of disks: D1 to D10. Source: spec/proof.md 2."""

from typing import Final

from chaos.catalogue.kinds import FaultEntry, Takes, Target

_COMPILER: Final = "a C compiler"
_DIFFER: Final = "bytes that differ"
_START: Final = "it is started again"
_COPIES: Final = "its peers send it what it lacks"

KINDS: Final = (
    FaultEntry(
        ids=("D1", "D4"), kind="disk.power_loss",
        title="unsynced writes are lost, torn or reordered", target=Target.BROKER,
        witness=_DIFFER, undo=_START, simulator="power_loss", needs=_COMPILER,
        nemesis="power_loss",
        recorded=("powerloss", "proc.powerloss", "disk.lose", "disk.unsynced", "disk.torn"),
        takes=Takes.UNSYNCED, spoils=True,
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D1", "D4"), kind="disk.power_loss_all", title="the same, of all at once",
        target=Target.BROKERS, witness=_DIFFER, undo="they are started again",
        simulator="power_loss_all", needs=_COMPILER, takes=Takes.UNSYNCED, spoils=True,
        nemesis="power_loss_all",
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D2",), kind="disk.lie", title="syncs return and did nothing", target=Target.BROKER,
        witness="syncs counted; shows only with a loss of power", undo="syncs work",
        simulator="lying_sync", needs=_COMPILER, recorded=("disk.lie",), takes=Takes.SYNCED,
        forgets=True, only_with_power_loss=True, nemesis="lie",
    ),
    FaultEntry(
        ids=("D3", "D6"), kind="disk.eio", title="a sync fails once; reads or writes fail",
        target=Target.BROKER, witness="calls that failed; after a sync the process ends",
        undo="calls work, and it runs", simulator="eio", needs=_COMPILER,
        takes=Takes.UNSYNCED,
        nemesis="eio",
        logs=("resource", "corrupt"),
    ),
    FaultEntry(
        ids=("D5",), kind="disk.full", title="no space, then space again", target=Target.BROKER,
        witness="writes refused, then none", undo="space is freed", simulator="disk_full",
        needs=_COMPILER, nemesis="full",
        logs=("resource",),
    ),
    FaultEntry(
        ids=("D7",), kind="disk.slow", title="writes and syncs take longer", target=Target.BROKER,
        witness="calls that waited", undo="they do not", simulator="slow_disk", needs=_COMPILER,
        nemesis="slow",
    ),
    FaultEntry(
        ids=("D7",), kind="disk.hang", title="writes and syncs do not return",
        target=Target.BROKER, witness="calls that waited", undo="they return",
        simulator="hung_disk", needs=_COMPILER,
        nemesis="hang",
    ),
    FaultEntry(
        ids=("D8",), kind="disk.flip", title="bits of the log flip", target=Target.BROKER,
        witness=_DIFFER, undo=_COPIES, simulator="bit_rot",
        recorded=("disk.flip", "disk.bitflip", "disk.corrupt"), takes=Takes.SYNCED, spoils=True,
        nemesis="flip",
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D8",), kind="disk.truncate", title="a tail is cut off", target=Target.BROKER,
        witness=_DIFFER, undo=_COPIES,
        recorded=("disk.truncate",), takes=Takes.SYNCED, spoils=True,
        nemesis="truncate",
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D9",), kind="disk.misdirect", title="a write in the wrong place, old bytes back",
        target=Target.BROKER, witness=_DIFFER, undo=_COPIES,
        lacks="a fault of the nemesis; needs nothing but the files",
        recorded=("disk.copy", "disk.helix"), takes=Takes.SYNCED, spoils=True,
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D9",), kind="disk.spoil",
        title="queue files and their checkpoint damaged, the log whole", target=Target.BROKER,
        witness=_DIFFER, undo="they are made anew from the log", simulator="spoil",
        nemesis="spoil",
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D10",), kind="disk.wipe", title="a data directory is lost", target=Target.BROKER,
        witness="the log is gone", undo=_COPIES, simulator="wipe",
        recorded=("disk.wipe", "wipe"), takes=Takes.SYNCED, spoils=True, forgets=True,
        nemesis="wipe",
        logs=("corrupt",),
    ),
    FaultEntry(
        ids=("D10",), kind="disk.rollback", title="an old copy of a data directory comes back",
        target=Target.BROKER, witness="an earlier end of the log", undo=_COPIES,
        recorded=("disk.rollback", "restore"), takes=Takes.SYNCED, spoils=True, forgets=True,
        nemesis="rollback", met_by="as a disk that was lost; the group knows nothing of it",
        logs=("corrupt",),
    ),
)  # fmt: skip
"""All kinds."""
