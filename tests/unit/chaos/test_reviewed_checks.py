"""What readers of the checks found: who was accused, though sound, and what passed, though odd."""

import pytest

from chaos.checker import check_history
from chaos.checker.messages import check_loss
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.histories import GROUP, TOPIC, clean, delivery, drain, send


def judged(check, **more):
    """Return what a check finds in the clean history with some parts of it replaced."""
    found = check_history(clean(**more)).results[check]
    return found.verdict, found.count


def ack(kind, **more):
    return {
        "grp": GROUP, "kind": kind, "topic": TOPIC, "queue_id": 0, "value_offset": None,
        "outcome": "ok", "t_inv": 2_000, "t_cmp": 2_001, "durable": None, "msg_key": None,
        "consumer": "c0", "reconsume": None, "delay_ms": None,
    } | more  # fmt: skip


def test_topic_whose_only_epoch_is_the_first_was_not_made_anew():
    """Some count from 1: what is asked of offsets is asked of theirs, too."""
    sends = [send(key, epoch=1) for key in (1, 2, 3)]
    beyond = [ack("commit", value_offset=50)]
    assert judged("A19", sends=sends, acks=beyond) == ("invalid", 1)
    assert judged("A19", sends=[*sends, send(4, epoch=2)], acks=beyond) == ("valid", 0)


def event(seq, kind, **more):
    return {
        "node": "n0", "boot_id": "b", "seq": seq, "node_mono_ns": seq, "group": 0, "kind": kind,
        "term": 1, "index": None, "prev_index": None, "peer": None, "hash": None, "extra": None,
    } | more  # fmt: skip


def test_leader_of_one_group_may_follow_in_another_in_the_same_term():
    """Each group has terms of its own; so have the entries that a leader appends."""
    leads = [
        event(1, "become_leader"),
        event(2, "append", prev_index=10, index=11),
        event(3, "commit", index=11, prev_index=10),
    ]
    follows = event(4, "commit", group=1, index=3, prev_index=2)
    assert judged("A37", raft_events=[*leads, follows]) == ("valid", 0)
    other = [
        event(4, "become_leader", group=1),
        event(5, "append", group=1, prev_index=2, index=3),
        event(6, "commit", group=0, index=10, prev_index=9),
    ]
    assert judged("A37", raft_events=[*leads, *other]) == ("invalid", 1), "hidden by another group"


def test_masters_of_two_groups_acknowledge_in_the_same_epoch():
    """Two pairs under the same controllers: each has its first epoch."""
    named = [
        {"controller": "s0", "t0": t, "t1": t + 1, "grp": grp, "epoch": 1, "node": node}
        for t, (grp, node) in enumerate([("a", "n0"), ("b", "n1")], start=1)
    ]
    sends = [send(1, raft_term=1, raft_group=0), send(2, raft_term=1, raft_group=1, node="n1")]
    assert judged("A63", masters=named, sends=sends) == ("valid", 0)
    assert judged("A63", masters=named, sends=[sends[0], sends[1] | {"raft_group": 0}]) == (
        "invalid",
        1,
    )


def test_what_was_committed_before_its_topic_was_made_anew_is_owed_to_nobody():
    half = send(4, kind="txn", queue_id=None, queue_offset=None, epoch=0)
    steps = [
        {"txn_id": 4, "msg_key": 4, "step": step, "answer": None, "outcome": "ok"}
        | {"t_inv": 50 + at, "t_cmp": 51 + at}
        for at, step in enumerate(("half", "commit"))
    ]
    sends = [*(send(key, epoch=0) for key in (1, 2, 3)), half]
    assert judged("A55", sends=sends, txn=steps) == ("invalid", 1)
    assert judged("A55", sends=[*sends, send(5, offset=0, epoch=1)], txn=steps) == ("valid", 0)


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        (ack("ack", durable=True, value_offset=None), "acks.msg_key"),
        (ack("commit", durable=True, value_offset=None), "acks.value_offset"),
        (ack("commit", durable=True, value_offset=3, queue_id=None), "acks.queue_id"),
    ],
)
def test_durable_acknowledgement_of_nobody_knows_what_is_named(told, lacks):
    found = check_history(clean(acks=[told])).results["A52"]
    assert (found.verdict, lacks in found.summary) == ("unknown", True)


def test_star_subscribes_to_all_of_a_topic():
    """Not to a tag of that name: then nothing would be owed, and all of it against the wish."""
    wishes = {GROUP: {TOPIC: ["*"]}}
    assert judged("A46", subscriptions=wishes) == ("valid", 0)
    missed = [delivery(key) for key in (1, 3)]
    assert judged("A1", subscriptions=wishes, deliveries=missed) == ("invalid", 1)
    assert judged("A1", subscriptions={GROUP: {TOPIC: ["red"]}}, deliveries=missed) == ("valid", 0)


@pytest.mark.parametrize(("check", "most"), [("A27", {}), ("A57", {GROUP: 0})])
def test_what_is_refused_amid_its_call_has_not_come_again_by_the_end_of_it(check, most):
    """A listener may refuse before it returns."""
    called = {"t_proc_begin": 1_010, "t_proc_end": 1_030, "consumer": "c0"}
    given = [delivery(key, **(called if key == 2 else {})) for key in (1, 2, 3)]
    acks = [ack("nack", msg_key=2, reconsume=0, delay_ms=0, t_inv=1_020, t_cmp=1_021)]
    parts = {"acks": acks, "reconsume_max": most}
    assert judged(check, deliveries=given, **parts) == ("invalid", 1)
    kept = given[1] | {"t_proc_begin": 1_040, "t_proc_end": 1_050, "op_id": 77}
    assert judged(check, deliveries=[*given, kept], **parts) == ("valid", 0)


@pytest.mark.parametrize(("outcome", "code", "more"), [("fail", 14, 1), ("info", None, 0)])
def test_attempt_that_was_refused_leaves_no_copy(outcome, code, more):
    """Where each attempt has a row, one that certainly stored nothing explains no copy."""
    again = send(2, outcome=outcome, err_code=code, op_id=77)
    sends = [*(send(key) for key in (1, 2, 3)), again]
    copied = [*(delivery(key) for key in (1, 2, 3)), delivery(2, offset=9)]
    assert judged("A8", sends=sends, deliveries=copied) == ("valid", more)


def test_deliveries_are_gone_through_once_however_many_delayed_messages_are_lost():
    """A search for each took hours where thousands were lost."""
    asked = []

    class Watched(dict):
        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    def reads_with(lost):
        keys = range(10, 10 + lost)
        waiting = {"kind": "delay", "queue_id": None, "queue_offset": None, "delay_ms": 0}
        sends = [*(send(key) for key in (1, 2, 3)), *(send(key, **waiting) for key in keys)]
        history = clean(sends=sends, deliveries=[Watched(delivery(key)) for key in (1, 2, 3)])
        asked.clear()
        assert check_loss(history).count == lost
        return len(asked)

    assert reads_with(50) == reads_with(1)


def test_commit_that_does_not_say_its_topic_leaves_the_others_to_be_judged():
    acks = [
        ack("commit", value_offset=3),
        ack("commit", value_offset=3, topic=None),
        ack("fetch", value_offset=1, t_inv=9_000, t_cmp=9_001),
    ]
    assert judged("A18", acks=acks) == ("invalid", 1)


@pytest.mark.parametrize(("first", "then"), [(False, True), (True, False)])
def test_queue_is_drained_where_nobody_says_otherwise(first, then):
    """In whatever order who drained it says so."""
    missed = [delivery(key) for key in (1, 3)]
    facts = [drain(drained=first), drain(drained=then, min_off=1)]
    assert judged("A1", deliveries=missed, drain=facts) == ("unknown", 0)
    owed = [drain(min_off=low) for low in ((0, 3) if first else (3, 0))]
    assert judged("A1", deliveries=missed, drain=owed) == ("invalid", 1)


def test_copy_in_the_log_explains_one_delivery_from_each_place():
    """Sent twice and read from both places: neither is a cause for the other to come once more."""
    began = [
        {"idx": 0, "role": "consumer", "f": "start", "node": "c0", "value": "{}", "t_mono_ns": 1}
    ]
    calls = [(4, 0), (9, 1), (4, 2), (9, 3)]
    given = [
        delivery(4, offset=offset, consumer="c0", generation=1, op_id=n, t_recv=10_000_000_000 + n)
        for offset, n in calls
    ]
    parts = {"sends": [send(1), send(4, attempts=2)], "events": began}
    assert judged("A9", deliveries=given[:2], **parts) == ("valid", 0)
    assert judged("A9", deliveries=given, **parts) == ("invalid", 2)


@pytest.mark.parametrize(
    ("lives", "found"),
    [
        (("b", "b"), ("invalid", 1)),
        (("b", "c"), ("valid", 0)),
        ((None, None), ("unknown", 0)),
    ],
)
def test_commit_index_may_fall_where_nobody_says_in_which_life(lives, found):
    """A restart begins with what is known to be committed: less than before."""
    told = [
        {"node": "n0", "boot_id": life, "t0": 10 * at, "t1": 10 * at + 1, "ok": True,
         "role": "follower", "group": 0, "term": 1, "commit": commit, "applied": None,
         "voted_for": None} for at, (life, commit) in enumerate(zip(lives, (9, 3), strict=True), 1)
    ]  # fmt: skip
    assert judged("A33", probes=told) == found
    events = [
        event(at, "commit", index=index, prev_index=0, boot_id=life)
        for at, (life, index) in enumerate(zip(lives, (9, 3), strict=True))
    ]
    assert judged("A33", raft_events=events) == found


@pytest.mark.parametrize("log", [None, "the end of its log", 139, ["one line", 2]])
def test_process_that_ended_is_found_whatever_stands_for_its_log(log):
    assert judged("A51", exits=[{"process": "n1", "exit": 1, "log": log}]) == ("invalid", 1)


def test_retry_explains_one_delivery_from_its_place_under_its_number():
    """A copy in the retry queue comes once for its refusal; an orderly member tries many times."""
    began = [
        {"idx": 0, "role": "consumer", "f": "start", "node": "c0", "value": "{}", "t_mono_ns": 1}
    ]
    acks = [ack("nack", msg_key=2, reconsume=n, delay_ms=0, t_inv=1_003 + n) for n in range(2)]

    def given(*numbers, offset=7):
        t = 10_000_000_000
        again = [
            delivery(2, offset=offset, reconsume=number, is_retry=True, consumer="c0", op_id=at,
                     generation=1, t_recv=t + at) for at, number in enumerate(numbers)
        ]  # fmt: skip
        return {"events": began, "acks": acks, "deliveries": [delivery(2), *again]}

    assert judged("A9", **given(1, 2)) == ("valid", 0)
    assert judged("A9", **given(1, 2, offset=2)) == ("valid", 0)
    assert judged("A9", **given(1, 1)) == ("invalid", 1)


def test_orderly_member_that_begins_again_is_laid_beside_its_last_try():
    """It tried in place for long: what explains that another begins anew happened by then."""
    second = 1_000_000_000
    tries = [
        delivery(2, reconsume=n, is_retry=n > 0, consumer="c0", generation=1, op_id=n,
                 t_recv=100 * second + n * second) for n in range(30)
    ]  # fmt: skip
    anew = delivery(2, reconsume=0, is_retry=False, consumer="c1", generation=1, op_id=40,
                    t_recv=131 * second)  # fmt: skip
    value = '{"consumer": "c1", "grp": "g"}'
    moved = {"idx": 0, "role": "consumer", "f": "rebalance", "node": "c1", "value": value}
    events = [moved | {"t_mono_ns": 130 * second}]
    assert judged("A9", deliveries=[*tries, anew], events=events) == ("valid", 0)


@pytest.mark.parametrize(
    ("bug", "shown_by"),
    [
        ("leaders-of-any-group", test_leader_of_one_group_may_follow_in_another_in_the_same_term),
        ("epochs-of-all-groups", test_masters_of_two_groups_acknowledge_in_the_same_epoch),
        (
            "committed-for-ever",
            test_what_was_committed_before_its_topic_was_made_anew_is_owed_to_nobody,
        ),
        (
            "retries-explain-for-ever",
            test_retry_explains_one_delivery_from_its_place_under_its_number,
        ),
        ("star-is-a-tag", test_star_subscribes_to_all_of_a_topic),
        ("copies-explain-for-ever", test_copy_in_the_log_explains_one_delivery_from_each_place),
    ],
)
def test_planted_misjudgement_is_seen(bug, shown_by):
    with planted(HARNESS_BUGS[bug]), pytest.raises(AssertionError):
        shown_by()


@pytest.mark.parametrize(
    ("bug", "shown_by", "arguments"),
    [
        (
            "given-again-by-its-own-call",
            test_what_is_refused_amid_its_call_has_not_come_again_by_the_end_of_it,
            ("A57", {GROUP: 0}),
        ),
        ("refused-attempts-leave-copies", test_attempt_that_was_refused_leaves_no_copy,
         ("fail", 14, 1)),
    ],
)  # fmt: skip
def test_planted_misjudgement_of_one_kind_is_seen(bug, shown_by, arguments):
    with planted(HARNESS_BUGS[bug]), pytest.raises(AssertionError):
        shown_by(*arguments)
