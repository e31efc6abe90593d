"""What looks excused by a fault, and is not: each alone is found by its check, by both checkers."""

from tests.spark.generate import MS, HistoryBuilder, Message, plant_second_vote
from tests.spark.kinds import Kind, Spoil, failing, late, of, transactions, waiting


def again_amid(kind: str, target: str, *, effective: bool = True) -> Spoil:
    """A message came twice, and a fault was in force that has nothing to do with it."""

    def spoil(run: HistoryBuilder, messages: list[Message]) -> None:
        t = messages[3].delivery["t_recv"]
        run.fault(kind, [target], t - MS, t + MS, effective)
        run.deliver(messages[3])

    return spoil


def votes_after_no_wipe(run: HistoryBuilder, messages: list[Message]) -> None:
    """A disk was to be wiped, and a witness saw it whole: its node forgot a vote all the same."""
    run.fault("wipe", ["n2"], run.clock, run.clock + MS, effective=False)
    plant_second_vote(run, messages[3])


def votes_of_one_life(run: HistoryBuilder, messages: list[Message]) -> None:
    """A node whose disk was wiped later had voted twice in one life before."""
    run.event("n1", "vote_granted", 1, peer="n2", index=-1, prev_index=0)
    run.fault("wipe", ["n1"], run.clock, run.clock + MS)


def late_amid_nothing(kind: Kind) -> None:
    late(kind)
    t = kind.given[-1]["t_recv"]
    kind.run.fault("pause", ["n0"], t, t + MS, effective=False)


def never_asked_since(kind: Kind) -> None:
    """A broker stood still soon after a half was sent, and was quiet for ten seconds then."""
    left = kind.send(kind="txn", stored=False)
    left.send.update(queue_id=None, queue_offset=None)
    kind.run.clock += 100 * MS
    kind.run.fault("pause", ["n0"], kind.run.clock, kind.run.clock + 100 * MS)
    kind.run.clock += 12_000 * MS
    kind.deliver(kind.send())


def asked_amid_an_outage_of_names(kind: Kind) -> None:
    """A half is asked about too soon while a name server stands still."""
    t = kind.rows["checkback/half"]["t_inv"] + 2 * MS
    kind.rows["checkback/checkback"].update(t_inv=t, t_cmp=t)
    kind.run.fault("namesrv_pause", ["ns0"], t - MS, t + MS)


def two_copies_of_a_refusal(kind: Kind) -> None:
    """It comes again from a second copy, long after all unrest, under the number of the first."""
    kind.run.clock += 20_000 * MS
    kind.deliver(kind.sent[1], is_retry=True, reconsume=1, queue_offset=1)


def received_early_and_kept(kind: Kind) -> None:
    """It was received before its time; its listener began with it later."""
    refused = kind.rows["nack 0"]["t_inv"]
    early, due = refused + 500 * MS, refused + 1_050 * MS
    kind.rows["retry"].update(
        t_fetch_inv=early - MS, t_recv=early, t_proc_begin=due, t_proc_end=due + MS
    )


EXCUSE_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "again, without a fault": ("A9", "invalid", again_amid("pause", "n0", effective=False)),
    "again amid names that stand still": ("A9", "invalid", again_amid("namesrv_pause", "ns0")),
    "again as a producer is killed": ("A9", "invalid", again_amid("client_kill", "producer-0")),
    "again amid what nobody knows": ("A9", "invalid", again_amid("nonsense", "n0")),
    "again amid a pause elsewhere": ("A9", "invalid", again_amid("pause", "m7")),
    "two votes, and no wipe": ("A31", "invalid", votes_after_no_wipe),
    "two votes of one life": ("A31", "invalid", votes_of_one_life),
    "late, without a fault": ("A25", "invalid", of(waiting, late_amid_nothing)),
    "not asked since": ("A23", "invalid", of(transactions, never_asked_since)),
    "asked amid names that stand still": (
        "A23", "invalid", of(transactions, asked_amid_an_outage_of_names),
    ),
    "two copies of a refusal": ("A26", "invalid", of(failing, two_copies_of_a_refusal)),
    "received early and kept": ("A26", "invalid", of(failing, received_early_and_kept)),
}  # fmt: skip
"""As in `minimal`: the check that finds it, its verdict, and how the history comes about."""
