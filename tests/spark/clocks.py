"""What looks wrong only because the clocks of two hosts differ by a little, and what is wrong."""

from tests.spark.generate import MS, HistoryBuilder, Message
from tests.spark.kinds import Kind, Spoil, of, orderly, reading, transactions, waiting
from tests.spark.minimal import overtaken

TOLERANCE_NS = 5 * MS


def receive(message: Message, t: int) -> None:
    """A message was fetched and received at another time."""
    message.delivery.update(t_fetch_inv=t - MS, t_recv=t)


def received_early(run: HistoryBuilder, messages: list[Message]) -> None:
    receive(messages[1], messages[1].send["t_inv"] - 1)


def event_earlier(run: HistoryBuilder, messages: list[Message]) -> None:
    run.add("events", idx=2, type="info", f="send", t_mono_ns=900 * MS)


def later_by_a_hair(kind: Kind) -> None:
    """c1 has another clock, by which it got the fourth message after c0 the fifth."""
    t = kind.given[4]["t_recv"] + 1
    kind.given[3].update(consumer="c1", generation=2, t_fetch_inv=t - MS, t_recv=t)


def overlapped(kind: Kind) -> None:
    kind.given[2]["t_proc_end"] = kind.given[4]["t_proc_begin"] + 1


def shard_turned(kind: Kind) -> None:
    """The third call seems to begin behind the next of its shard, and both are short."""
    other = kind.given[4]
    kind.given[2].update(t_proc_begin=other["t_proc_end"], t_proc_end=other["t_proc_end"] + 1)


def before_the_word(kind: Kind) -> None:
    t = kind.rows["commit/commit"]["t_inv"]
    kind.given[0].update(t_fetch_inv=t - 2 * MS, t_recv=t - 1)


def early(kind: Kind) -> None:
    sent = kind.sent[0].send
    kind.given[0].update(t_fetch_inv=sent["t_cmp"], t_recv=sent["t_inv"] + 990 * MS - 1)


def missed_by_a_hair(run: HistoryBuilder, messages: list[Message]) -> None:
    """Two of three brokers are down from just before it was sent."""
    send = messages[7].send
    for node in ("n1", "n2"):
        run.fault("kill", [node], send["t_inv"] - MS // 10, send["t_cmp"] + MS // 10)


WITHIN: dict[str, tuple[str, Spoil]] = {
    "received before it was sent": ("A45", received_early),
    "event before the one before": ("A45", event_earlier),
    "sent after, stored before": ("A11", overtaken),
    "told by too few": ("A38", missed_by_a_hair),
    "passed over": ("A14", of(reading, later_by_a_hair)),
    "two calls at once": ("A17", of(orderly, overlapped)),
    "shard turned": ("A17", of(orderly, shard_turned)),
    "before the word": ("A54", of(transactions, before_the_word)),
    "delayed, and early": ("A56", of(waiting, early)),
}
"""By name the check that complains if clocks are one, and how the history comes about."""


def far_too_early(run: HistoryBuilder, messages: list[Message]) -> None:
    receive(messages[1], messages[1].send["t_inv"] - TOLERANCE_NS - 1)


def far_overtaken(run: HistoryBuilder, messages: list[Message]) -> None:
    overtaken(run, messages)
    for name in ("t_inv", "t_cmp"):
        messages[4].send[name] += 2 * TOLERANCE_NS


BEYOND: dict[str, tuple[str, Spoil]] = {
    "received before it was sent": ("A45", far_too_early),
    "sent after, stored before": ("A11", far_overtaken),
}
"""What no difference of so much explains."""


def declared(spoil: Spoil, tolerance_ns: int = TOLERANCE_NS) -> Spoil:
    """Declare by how much clocks may differ, and spoil."""

    def both(run: HistoryBuilder, messages: list[Message]) -> None:
        run.run["clock_tolerance_ns"] = tolerance_ns
        spoil(run, messages)

    return both


def all_within(run: HistoryBuilder, messages: list[Message]) -> None:
    """Everything that a tolerance explains, in one history."""
    for _, spoil in WITHIN.values():
        spoil(run, messages)
