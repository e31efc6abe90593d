"""What clients see is judged against the committed log."""

import pytest

from chaos.history.segment import EntryRow
from sim.oracles.base import Findings, Violation
from sim.oracles.clients import Clients
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


def judge(truth: Truth) -> tuple[Clients, Findings]:
    findings = Findings()
    return Clients(truth, findings), findings


def found(findings: Findings) -> str:
    assert findings.first is not None
    return findings.first.oracle


def test_acknowledged_message_must_be_committed_at_its_place(truth: Truth):
    clients, findings = judge(truth)
    clients.on_acknowledged(QUEUE, 1, [12, 13])
    assert findings.first is None
    clients.on_acknowledged(QUEUE, 0, [12])
    assert found(findings).startswith("A38")


def test_acknowledged_message_beyond_the_commit_is_found(truth: Truth):
    clients, findings = judge(truth)
    clients.on_acknowledged(QUEUE, 3, [14])
    assert found(findings).startswith("A38")


def test_uncommitted_message_must_not_be_delivered(truth: Truth):
    clients, findings = judge(truth)
    clients.on_delivered(QUEUE, 2, 13, 91)
    assert findings.first is None
    clients.on_delivered(QUEUE, 3, 14, 98)
    assert found(findings).startswith("A5")


def test_other_content_at_a_place_is_found(truth: Truth):
    clients, findings = judge(truth)
    clients.on_delivered(QUEUE, 2, 13, 92)
    assert found(findings).startswith("A15")


def test_ordered_sends_must_lie_in_their_order(truth: Truth):
    clients, findings = judge(truth)
    clients.on_ordered("p0", QUEUE, 4, 1)
    clients.on_ordered("p0", QUEUE, 5, 2)
    assert findings.first is None
    clients.on_ordered("p0", QUEUE, 6, 0)
    assert found(findings).startswith("A20")


def test_read_index_below_what_was_committed_is_stale(truth: Truth):
    clients, findings = judge(truth)
    clients.on_read_index(2, 2, "n0")
    assert findings.first is None
    clients.on_read_index(2, 1, "n0")
    assert found(findings) == "A38 stale read"


def test_fetched_offset_must_have_been_offered(truth: Truth):
    clients, findings = judge(truth)
    clients.on_offered(QUEUE, 2)
    for offset in (-1, 0, 2):
        clients.on_fetched(QUEUE, offset)
    assert findings.first is None
    clients.on_fetched(QUEUE, 3)
    assert found(findings).startswith("A24")


def test_auditor_must_read_without_a_gap(truth: Truth):
    clients, findings = judge(truth)
    clients.on_audited(QUEUE, 0)
    clients.on_audited(QUEUE, 2)
    assert found(findings).startswith("A22")


def test_auditor_may_miss_what_was_dropped(truth: Truth):
    clients, findings = judge(truth)
    clients.on_audited(QUEUE, 0)
    clients.on_audited(QUEUE, 2, dropped=2)
    assert findings.first is None


def test_committed_message_that_the_auditor_cannot_read_is_found(truth: Truth):
    clients, findings = judge(truth)
    clients.on_audited(QUEUE, 0)
    clients.on_audited(QUEUE, 1)
    clients.on_audit_end(QUEUE, 0, 2)
    assert findings.first is None
    clients.on_audit_end(QUEUE, 0, 3)
    assert found(findings) == "A1 committed but not readable"


def test_acknowledged_message_that_is_gone_is_found_at_the_end(truth: Truth):
    clients, _ = judge(truth)
    clients.at_end([(11, "ok"), (99, "info"), (98, "fail")])
    with pytest.raises(Violation, match="A1 acknowledged but lost"):
        clients.at_end([(99, "ok")])


def test_refused_message_that_is_there_is_found_at_the_end(truth: Truth):
    clients, _ = judge(truth)
    with pytest.raises(Violation, match="A7"):
        clients.at_end([(12, "fail")])


def test_gap_in_queue_offsets_is_found_as_it_is_committed(truth: Truth):
    truth.rows[3, 1] = entry(3, 14, 4)
    with pytest.raises(Violation, match="A39 queue offset"):
        truth.commit(3, Mark(1, 300, 100, 14), 1)


def test_only_the_first_finding_is_kept():
    findings = Findings()
    findings.report(Violation("one", "a"))
    findings.report(Violation("two", "b"))
    assert found(findings) == "one"
