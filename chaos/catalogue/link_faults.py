"""Faults of what lies between processes: N1 to N13. Source: spec/proof.md 2."""

from typing import Final

from chaos.catalogue.kinds import FaultEntry, Target

_WITHHELD: Final = "bytes withheld, none passed"
_HEAL: Final = "the links are healed"
_FRAMES: Final = "frames counted by the proxy"
_SEALED: Final = "with a key or TLS the connection ends"
_NO_MORE: Final = "a message that was said already says nothing new; " + _SEALED

KINDS: Final = (
    FaultEntry(
        ids=("N1",), kind="net.isolate", title="a broker sees no other", target=Target.BROKER,
        witness=_WITHHELD, undo=_HEAL, nemesis="isolate", simulator="isolate",
        recorded=("net.isolate", "partition"),
    ),
    FaultEntry(
        ids=("N1",), kind="net.halves", title="two halves that do not see each other",
        target=Target.LINK, witness=_WITHHELD, undo=_HEAL, simulator="halves",
        lacks="five brokers or more; the proxy can",
    ),
    FaultEntry(
        ids=("N1",), kind="net.leader_minority", title="the leader on the side that cannot commit",
        target=Target.LINK, witness=_WITHHELD, undo=_HEAL, simulator="leader_minority",
        lacks="five brokers or more; of three it is `isolate`",
    ),
    FaultEntry(
        ids=("N1",), kind="net.leader_majority", title="the leader on the side that can commit",
        target=Target.LINK, witness=_WITHHELD, undo=_HEAL, simulator="leader_majority",
        lacks="five brokers or more; of three it is `isolate` of a follower",
    ),
    FaultEntry(
        ids=("N2",), kind="net.bridge", title="one link cut: both ends see the third",
        target=Target.LINK, witness=_WITHHELD, undo=_HEAL, nemesis="cut", simulator="bridge",
    ),
    FaultEntry(
        ids=("N3",), kind="net.ring", title="each broker sees its two neighbours",
        target=Target.LINK, witness=_WITHHELD, undo=_HEAL, simulator="ring",
        lacks="four brokers or more; the proxy can",
    ),
    FaultEntry(
        ids=("N4",), kind="net.one_way", title="nothing passes in one direction",
        target=Target.LINK, witness=_WITHHELD, undo=_HEAL, nemesis="oneway", simulator="one_way",
    ),
    FaultEntry(
        ids=("N5",), kind="net.client_cut",
        title="clients do not reach a broker, or nothing at all",
        target=Target.CLIENT, witness=_WITHHELD, undo=_HEAL, simulator="client_cut",
        nemesis="client_cut", reaches_brokers=True,
    ),
    FaultEntry(
        ids=("N4",), kind="net.namesrv_cut",
        title="a broker and a name server do not hear each other, or one not the other",
        target=Target.NAMESRV, witness=_WITHHELD, undo=_HEAL, simulator="namesrv_cut",
        nemesis="namesrv_cut", reaches_brokers=True,
    ),
    FaultEntry(
        ids=("N4",), kind="net.controller_cut",
        title="brokers reach no controller, and clients reach them", target=Target.BROKER,
        witness=_WITHHELD, undo=_HEAL, nemesis="controller_cut", needs="controllers",
    ),
    FaultEntry(
        ids=("N1",), kind="net.controller_isolate",
        title="controllers see no other one, and brokers reach them; by default two of three",
        target=Target.CONTROLLERS, witness=_WITHHELD, undo=_HEAL, nemesis="controller_isolate",
        needs="controllers",
    ),
    FaultEntry(
        ids=("N6", "N7"), kind="net.namesrv_delay",
        title="what a broker and a name server say comes late",
        target=Target.NAMESRV, witness="round trips take longer", undo=_HEAL,
        simulator="namesrv_delay", nemesis="namesrv_delay",
    ),
    FaultEntry(
        ids=("N11",), kind="net.namesrv_reset",
        title="connections between a broker and name servers end",
        target=Target.NAMESRV, witness="connections ended", undo="they are made again",
        simulator="namesrv_reset", nemesis="namesrv_reset",
    ),
    FaultEntry(
        ids=("N11",), kind="net.client_reset",
        title="connections of a client end, and brokers hold their ends for some time more",
        target=Target.CLIENT, witness="connections ended", undo="brokers hear of it",
        simulator="client_reset",
        lacks="somebody who ends a connection for the client and goes on holding it for the broker",
    ),
    FaultEntry(
        ids=("N6", "N7"), kind="net.delay",
        title="everything takes longer; what is lost comes later",
        target=Target.LINK, witness="frames are late by that much, as measured", undo=_HEAL,
        nemesis="delay", simulator="delay",
    ),
    FaultEntry(
        ids=("N8",), kind="net.duplicate", title="frames come twice", target=Target.LINK,
        witness=_FRAMES, undo=_HEAL, simulator="duplicate", nemesis="duplicate", met_by=_NO_MORE,
    ),
    FaultEntry(
        ids=("N8",), kind="net.reorder", title="frames overtake each other", target=Target.LINK,
        witness=_FRAMES, undo=_HEAL, simulator="reorder", nemesis="reorder",
        met_by="what does not fit is asked for again; " + _SEALED,
    ),
    FaultEntry(
        ids=("N8",), kind="net.replay", title="frames come again, from an earlier term too",
        target=Target.LINK, witness=_FRAMES, undo=_HEAL, simulator="replay", nemesis="replay",
        met_by="an earlier term is refused; " + _NO_MORE,
    ),
    FaultEntry(
        ids=("N9",), kind="net.corrupt", title="bytes changed behind the transport's checksum",
        target=Target.LINK, witness="frames changed, and connections ended for it", undo=_HEAL,
        simulator="corrupt", nemesis="corrupt",
        met_by="refused by its CRC, or by seal or TLS: the connection ends",
    ),
    FaultEntry(
        ids=("N10",), kind="net.narrow", title="little bandwidth", target=Target.LINK,
        witness="bytes that waited, and no more passed", undo=_HEAL, nemesis="narrow",
    ),
    FaultEntry(
        ids=("N11",), kind="net.reset", title="connections end, in the middle of a frame too",
        target=Target.LINK, witness="connections ended, and others were made",
        undo="they are made again", nemesis="reset", simulator="reset",
    ),
    FaultEntry(
        ids=("N12",), kind="net.drop", title="one type of message is dropped", target=Target.LINK,
        witness=_FRAMES, undo=_HEAL, simulator="drop", nemesis="drop",
        met_by="said again in time; " + _SEALED,
    ),
    FaultEntry(
        ids=("N13",), kind="net.flap", title="isolated and healed again and again",
        target=Target.BROKER, witness="bytes withheld, and bytes passed", undo=_HEAL,
        simulator="flap", nemesis="flap",
    ),
)  # fmt: skip
"""All kinds."""
