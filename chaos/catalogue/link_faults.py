"""Faults of what lies between processes: N1 to N13. Source: spec/proof.md 2."""

from typing import Final

from chaos.catalogue.kinds import FaultEntry, Target

_WITHHELD: Final = "bytes withheld, none passed"
_HEAL: Final = "the links are healed"
_PROXY_CAN: Final = "a fault of the nemesis; the proxy can"
_FRAMES: Final = "frames counted by the proxy"
_NAMESRV_PROXY: Final = "a proxy between brokers and name servers"

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
        ids=("N5",), kind="net.client_cut", title="a client sees neither brokers nor name servers",
        target=Target.CLIENT, witness=_WITHHELD, undo=_HEAL, simulator="client_cut",
        lacks="a proxy between clients and brokers",
    ),
    FaultEntry(
        ids=("N4",), kind="net.namesrv_cut",
        title="a broker and a name server do not hear each other, or one not the other",
        target=Target.NAMESRV, witness=_WITHHELD, undo=_HEAL, simulator="namesrv_cut",
        lacks=_NAMESRV_PROXY,
    ),
    FaultEntry(
        ids=("N6", "N7"), kind="net.namesrv_delay",
        title="what a broker and a name server say comes late",
        target=Target.NAMESRV, witness="round trips take longer", undo=_HEAL,
        simulator="namesrv_delay", lacks=_NAMESRV_PROXY,
    ),
    FaultEntry(
        ids=("N11",), kind="net.namesrv_reset",
        title="connections between a broker and name servers end",
        target=Target.NAMESRV, witness="connections ended", undo="they are made again",
        simulator="namesrv_reset", lacks=_NAMESRV_PROXY,
    ),
    FaultEntry(
        ids=("N6", "N7"), kind="net.delay",
        title="everything takes longer; what is lost comes later",
        target=Target.LINK, witness="round trips take longer", undo=_HEAL, simulator="delay",
        lacks=_PROXY_CAN,
    ),
    FaultEntry(
        ids=("N8",), kind="net.duplicate", title="frames come twice", target=Target.LINK,
        witness=_FRAMES, undo=_HEAL, simulator="duplicate", lacks=_PROXY_CAN,
    ),
    FaultEntry(
        ids=("N8",), kind="net.reorder", title="frames overtake each other", target=Target.LINK,
        witness=_FRAMES, undo=_HEAL, simulator="reorder",
        lacks="a command of the proxy that swaps frames",
    ),
    FaultEntry(
        ids=("N8",), kind="net.replay", title="frames come again, from an earlier term too",
        target=Target.LINK, witness=_FRAMES, undo=_HEAL, simulator="replay",
        lacks="a proxy that keeps frames",
    ),
    FaultEntry(
        ids=("N9",), kind="net.corrupt", title="bytes changed behind the transport's checksum",
        target=Target.LINK, witness="frames refused by their CRC", undo=_HEAL,
        simulator="corrupt", lacks=_PROXY_CAN,
    ),
    FaultEntry(
        ids=("N10",), kind="net.narrow", title="little bandwidth", target=Target.LINK,
        witness="bytes that wait", undo=_HEAL,
        lacks="a rate in the proxy, and a bound of its queue",
    ),
    FaultEntry(
        ids=("N11",), kind="net.reset", title="connections end, in the middle of a frame too",
        target=Target.LINK, witness="connections ended", undo="they are made again",
        simulator="reset", lacks=_PROXY_CAN,
    ),
    FaultEntry(
        ids=("N12",), kind="net.drop", title="one type of message is dropped", target=Target.LINK,
        witness=_FRAMES, undo=_HEAL, simulator="drop", lacks=_PROXY_CAN,
    ),
    FaultEntry(
        ids=("N13",), kind="net.flap", title="isolated and healed again and again",
        target=Target.BROKER, witness="bytes withheld, and bytes passed", undo=_HEAL,
        simulator="flap", lacks="a schedule in the proxy",
    ),
)  # fmt: skip
"""All kinds."""
