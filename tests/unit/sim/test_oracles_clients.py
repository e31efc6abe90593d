"""What clients see is judged against the committed log."""

import pytest

from chaos.history.segment import EntryRow
from sim.oracles.base import Findings, Violation
from sim.oracles.clients import LEASE_NS, Clients
from sim.oracles.replica import Mark
from sim.oracles.truth import Truth

QUEUE = ("orders", 0)


def entry(index: int, key: int, queue_offset: int) -> EntryRow:
    return EntryRow(
        entry_index=index, term=1, pos=100 * index, entry_crc=key, size=52, crc_ok=True,
        type="message", topic="orders", queue_id=0, queue_offset=queue_offset, msg_key=key,
        body_hash=key * 7, payload_run_id="ab",
    )  # fmt: skip


@pytest.fixture
def truth() -> Truth:
    truth = Truth(("n0", "n1", "n2"))
    for index, key in enumerate((11, 12, 13)):
        truth.rows[index, 1] = entry(index, key, index)
        truth.commit(index, Mark(1, 100 * index, 100, key), 1)
    return truth


def sent(key: int, outcome: str) -> dict[str, object]:
    return {"msg_key": key, "outcome": outcome, "attempts": 1, "t_cmp": 9}


def validator(truth: Truth) -> tuple[Clients, Findings]:
    findings = Findings()
    return Clients(truth, findings), findings


def found(findings: Findings) -> str:
    assert findings.first is not None
    return findings.first.oracle


def test_acknowledged_message_must_be_committed_at_its_place(truth: Truth):
    clients, findings = validator(truth)
    clients.on_acknowledged(QUEUE, 1, [12, 13])
    assert findings.first is None
    clients.on_acknowledged(QUEUE, 0, [12])
    assert found(findings).startswith("A38")


def test_acknowledged_message_beyond_the_commit_is_found(truth: Truth):
    clients, findings = validator(truth)
    clients.on_acknowledged(QUEUE, 3, [14])
    assert found(findings).startswith("A38")


def test_uncommitted_message_must_not_be_delivered(truth: Truth):
    clients, findings = validator(truth)
    clients.on_delivered(QUEUE, 2, 13, 91)
    assert findings.first is None
    clients.on_delivered(QUEUE, 3, 14, 98)
    assert found(findings).startswith("A5")


def test_other_content_at_a_place_is_found(truth: Truth):
    clients, findings = validator(truth)
    clients.on_delivered(QUEUE, 2, 13, 92)
    assert found(findings).startswith("A15")


def test_ordered_sends_must_lie_in_their_order(truth: Truth):
    clients, findings = validator(truth)
    clients.on_ordered("p0", QUEUE, 4, 1)
    clients.on_ordered("p0", QUEUE, 5, 2)
    assert findings.first is None
    clients.on_ordered("p0", QUEUE, 6, 0)
    assert found(findings).startswith("A20")


def test_read_index_below_what_was_committed_is_stale(truth: Truth):
    clients, findings = validator(truth)
    clients.on_read_index(2, 2, "n0")
    assert findings.first is None
    clients.on_read_index(2, 1, "n0")
    assert found(findings) == "A38 stale read"


def test_fetched_offset_must_have_been_offered(truth: Truth):
    clients, findings = validator(truth)
    clients.on_offered(QUEUE, 2)
    for offset in (-1, 0, 2):
        clients.on_fetched(QUEUE, offset)
    assert findings.first is None
    clients.on_fetched(QUEUE, 3)
    assert found(findings).startswith("A24")


def test_auditor_must_read_without_a_gap(truth: Truth):
    clients, findings = validator(truth)
    clients.on_audited(QUEUE, 0)
    clients.on_audited(QUEUE, 2)
    assert found(findings).startswith("A22")


def test_auditor_may_miss_what_was_dropped(truth: Truth):
    clients, findings = validator(truth)
    clients.on_audited(QUEUE, 0)
    clients.dropped[QUEUE] = 2
    clients.on_audited(QUEUE, 2)
    assert findings.first is None


def test_committed_message_that_the_auditor_cannot_read_is_found(truth: Truth):
    clients, findings = validator(truth)
    clients.on_audited(QUEUE, 0)
    clients.on_audited(QUEUE, 1)
    clients.on_audit_end(QUEUE, 0, 2)
    assert findings.first is None
    clients.on_audit_end(QUEUE, 0, 3)
    assert found(findings) == "A1 committed but not readable"


def test_acknowledged_message_that_is_gone_is_found_at_the_end(truth: Truth):
    clients, _ = validator(truth)
    clients.at_end([sent(11, "ok"), sent(99, "info"), sent(98, "fail")])
    with pytest.raises(Violation, match="A1 acknowledged but lost"):
        clients.at_end([sent(99, "ok")])


def test_refused_message_that_is_there_is_found_at_the_end(truth: Truth):
    clients, _ = validator(truth)
    with pytest.raises(Violation, match="A7"):
        clients.at_end([sent(12, "fail")])


@pytest.mark.parametrize(
    ("attempts", "possible", "t_cmp", "is_fine"),
    [(1, 1, 9, False), (2, 2, 9, True), (2, 1, 9, False), (1, 1, None, True)],
)
def test_message_lies_at_no_more_places_than_attempts_were_made(
    truth: Truth, attempts: int, possible: int, t_cmp: int | None, is_fine: bool
):
    truth.rows[3, 1] = entry(3, 13, 3)
    truth.commit(3, Mark(1, 300, 100, 13), 1)
    clients, _ = validator(truth)
    send = {**sent(13, "ok"), "attempts": attempts, "possible": possible, "t_cmp": t_cmp}
    if is_fine:
        clients.at_end([send])
    else:
        with pytest.raises(Violation, match="A8 more copies"):
            clients.at_end([send])


def test_delivered_properties_are_those_that_were_sent(truth: Truth):
    clients, findings = validator(truth)
    clients.on_properties(QUEUE, 0, ("11", "red"), ("11", "red"))
    assert findings.first is None
    clients.on_properties(QUEUE, 0, ("11", None), ("11", "red"))
    assert found(findings).startswith("A6")


def tagged(truth: Truth) -> Truth:
    truth.tags = {(0, 1): "red", (2, 1): "blue"}
    truth.times = {(index, 1): 1_000 + 10 * (index // 2) for index in range(3)}
    return truth


@pytest.mark.parametrize(
    ("tag", "got", "oracle"),
    [
        ("", {0, 1, 2}, ""),
        ("", {0, 2}, "A22 passed over by a read"),
        ("red", {0}, ""),
        ("blue", {2}, ""),
        ("blue", set(), "A22 passed over by a read"),
    ],
)
def test_read_passes_over_nothing_that_it_asked_for(
    truth: Truth, tag: str, got: set[int], oracle: str
):
    clients, findings = validator(tagged(truth))
    clients.on_pulled(QUEUE, range(3), tag, got)
    assert (findings.first is None) == (not oracle)
    assert not oracle or found(findings) == oracle


def test_read_must_not_go_past_what_is_committed(truth: Truth):
    clients, findings = validator(tagged(truth))
    clients.on_pulled(QUEUE, range(2, 4), "blue", {2})
    assert found(findings).startswith("A5")


@pytest.mark.parametrize(
    ("stored_ms", "offset", "held", "is_fine"),
    [
        (1_000, 0, (0, 3), True),
        (1_000, 1, (0, 3), False),  # the one before is of that time, too
        (1_000, 1, (1, 3), True),  # what lies before was dropped
        (1_010, 2, (0, 3), True),
        (1_010, 1, (0, 3), False),
        (1_010, 1, (0, 1), True),  # who answered had no more
        (1_011, 3, (0, 3), True),
        (1_011, 0, (3, 3), True),  # all of it was dropped
    ],
)
def test_search_by_time_finds_the_first_at_or_after_it(
    truth: Truth, stored_ms: int, offset: int, held: tuple[int, int], is_fine: bool
):
    clients, findings = validator(tagged(truth))
    assert clients.choose_time(QUEUE, 5) == 1_010
    assert clients.choose_time(("none", 0), 5) is None
    clients.on_searched(QUEUE, stored_ms, offset, held)
    assert (findings.first is None) == is_fine


def test_search_by_time_may_begin_where_one_broker_has_dropped_the_rest(truth: Truth):
    clients, findings = validator(tagged(truth))
    clients.dropped[QUEUE] = 1
    clients.on_searched(QUEUE, 1_000, 1, (0, 3))
    assert findings.first is None
    clients.on_searched(QUEUE, 1_000, 2, (0, 3))
    assert found(findings).startswith("A39")


def test_search_by_time_of_a_queue_that_one_broker_has_dropped_whole(truth: Truth):
    clients, findings = validator(tagged(truth))
    clients.dropped[QUEUE] = 3
    clients.on_searched(QUEUE, 1_010, 0, (0, 3))
    assert findings.first is None


def test_lock_of_a_queue_has_one_owner_until_it_is_given_back(truth: Truth):
    clients, findings = validator(truth)
    clients.on_locked(QUEUE, "p0-1", 5)
    clients.on_unlocking(QUEUE, "p0-1")
    clients.on_locked(QUEUE, "p0-2", 6)
    clients.on_unlocking(QUEUE, "p0-1")  # who has none gives nothing back
    clients.on_locked(QUEUE, "p0-3", 6 + LEASE_NS)
    assert findings.first is None
    clients.on_locked(QUEUE, "p1-4", 7 + LEASE_NS)
    assert found(findings) == "A21 a queue locked by two"


@pytest.mark.parametrize(
    ("owner", "after_ns", "is_granted", "is_sound"),
    [
        ("p0-1", 1, True, True),
        ("p0-1", 1, False, False),
        ("p0-1", LEASE_NS, False, True),
        ("p0-2", 1, False, True),
    ],
)
def test_who_has_a_lock_gets_it_again_until_it_runs_out(
    truth: Truth, owner: str, after_ns: int, *, is_granted: bool, is_sound: bool
):
    clients, findings = validator(truth)
    clients.on_locked(QUEUE, "p0-1", 5)
    clients.on_renewed(QUEUE, owner, 5 + after_ns, is_granted=is_granted)
    assert (findings.first is None) == is_sound


def test_a_renewed_lock_runs_anew(truth: Truth):
    clients, findings = validator(truth)
    clients.on_locked(QUEUE, "p0-1", 0)
    clients.on_renewed(QUEUE, "p0-1", LEASE_NS - 1, is_granted=True)
    clients.on_locked(QUEUE, "p0-2", LEASE_NS)
    assert found(findings) == "A21 a queue locked by two"


def test_store_times_never_fall_along_the_log(truth: Truth):
    truth.times = {(3, 1): 7, (4, 1): 7, (5, 1): 6, (6, 1): 5}
    for index, offset in ((3, 3), (4, 4), (5, 5), (6, 5)):
        truth.rows[index, 1] = entry(index, 11 + index, offset)
    truth.commit(3, Mark(1, 300, 100, 14), 1)
    truth.commit(4, Mark(1, 400, 100, 15), 1)
    with pytest.raises(Violation, match="A39 store time"):
        truth.commit(5, Mark(1, 500, 100, 16), 1)
    truth.may_fall = True
    truth.commit(6, Mark(1, 600, 100, 17), 1)


def test_gap_in_queue_offsets_is_found_as_it_is_committed(truth: Truth):
    truth.rows[3, 1] = entry(3, 14, 4)
    with pytest.raises(Violation, match="A39 queue offset"):
        truth.commit(3, Mark(1, 300, 100, 14), 1)


def test_only_the_first_finding_is_kept():
    findings = Findings()
    findings.report(Violation("one", "a"))
    findings.report(Violation("two", "b"))
    assert found(findings) == "one"
