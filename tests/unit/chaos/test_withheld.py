"""The in-process checker: what is refused, or not there, proves nothing; nor is it passed over."""

import os

import pytest

from chaos.catalogue.contracts import CONTROLLER, RAFT
from chaos.checker import check_history
from chaos.load import load_history
from chaos.record import DamagedRecording, read_recording
from chaos.run import tables_of
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.minimal import write_minimal
from tests.spark.withheld import DUMPS, FOUND, LACKING, LEFT_OUT, REFUSED, STAY, log_of


def judged(spoil, path, after=None):
    run = write_minimal(spoil, path)
    if after is not None:
        after(run)
    return check_history(load_history(run))


def invalid(found):
    return {name for name, result in found.results.items() if result.verdict == "invalid"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_run_can_have_said_is_named_and_proves_nothing(name, tmp_path):
    after, named = REFUSED[name]
    found = judged(None, tmp_path, after)
    assert (found.verdict, found.exit_code) == ("unknown", 2), found.reasons
    assert any(word in found.results["A48"].summary for word in named.split("|"))
    assert not any("check failed" in reason for reason in found.reasons)


@pytest.mark.parametrize("name", STAY)
def test_fault_of_which_no_end_is_known_is_told(name, tmp_path):
    after, named = STAY[name]
    found = judged(None, tmp_path, after)
    assert found.exit_code == 2
    assert named in found.results["A48"].summary


@pytest.mark.parametrize("name", DUMPS)
def test_dump_that_nobody_can_use_is_named_and_its_checks_are_unknown(name, tmp_path):
    found = judged(None, tmp_path, DUMPS[name])
    assert found.exit_code == 2
    assert "replicas/n1: needs meta.json" in found.results["A48"].summary
    for check in ("A34", "A35", "A39"):
        assert found.results[check].summary == "needs replicas, which was refused"


def test_logs_that_do_not_say_what_is_committed_are_not_compared(tmp_path):
    found = judged(log_of, tmp_path)
    for check in ("A34", "A35"):
        assert found.results[check].verdict == "unknown"
        assert "replica_log.committed" in found.results[check].summary


@pytest.mark.parametrize("name", LEFT_OUT)
def test_check_that_rests_on_what_was_left_out_is_unknown_and_says_so(name, tmp_path):
    after, wanted = LEFT_OUT[name]
    found = judged(None, tmp_path, after)
    assert (found.verdict, invalid(found)) == ("unknown", set()), found.reasons
    for check, words in wanted.items():
        assert found.results[check].verdict == "unknown"
        assert words in found.results[check].summary


@pytest.mark.parametrize("name", LACKING)
def test_what_a_check_needs_and_the_history_leaves_empty_is_named(name, tmp_path):
    checks, named, spoil = LACKING[name]
    found = judged(spoil, tmp_path)
    unknown = {check for check, one in found.results.items() if one.verdict == "unknown"}
    assert (unknown, invalid(found)) == (set(checks), set()), found.reasons
    assert all(named in found.results[check].summary for check in checks)


@pytest.mark.parametrize("name", FOUND)
def test_what_did_not_happen_excuses_nothing(name, tmp_path):
    check, spoil = FOUND[name]
    found = judged(spoil, tmp_path)
    assert check in invalid(found), found.reasons


def test_runs_name_the_tables_whose_loss_is_to_be_seen():
    of_raft, of_pair = tables_of(RAFT, decided=False), tables_of(CONTROLLER, decided=True)
    assert {"answers", "acks", "raft_event"} <= set(of_raft)
    assert set(of_pair) - set(of_raft) == {"masters"}
    assert set(of_raft) - set(of_pair) == {"raft_event"}, "pairs note no steps of Raft"


def test_recording_that_is_no_file_is_damaged(tmp_path):
    os.mkfifo(tmp_path / "harness.jsonl")
    with pytest.raises(DamagedRecording, match="not a regular file"):
        next(read_recording(tmp_path / "harness.jsonl"))


@pytest.mark.parametrize(
    ("bug", "shown"),
    [
        ("refused-tables-read-as-empty", LEFT_OUT["deliveries"][0]),
        ("lost-tables-read-as-empty", LEFT_OUT["no acknowledgements"][0]),
        ("rows-twice-counted-twice", REFUSED["a send twice"][0]),
        ("ends-before-begins", REFUSED["a call that ends first"][0]),
        ("one-column-tells-the-unit", REFUSED["fetches in microseconds"][0]),
        ("faults-that-stay-are-over", STAY["never lifted"][0]),
    ],
)
def test_planted_trust_is_seen(bug, shown, tmp_path):
    run = write_minimal(None, tmp_path)
    shown(run)
    sound = check_history(load_history(run))
    with planted(HARNESS_BUGS[bug]):
        found = check_history(load_history(run))
    told = [{c: (r.verdict, r.summary) for c, r in one.results.items()} for one in (sound, found)]
    assert told[0] != told[1]


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("failed-resets-set-anew", "told less, and no reset"),
        ("masters-lead-nothing", "a master in the term of a leader"),
    ],
)
def test_planted_excuse_is_seen(bug, name, tmp_path):
    check, spoil = FOUND[name]
    with planted(HARNESS_BUGS[bug]):
        assert check not in invalid(judged(spoil, tmp_path))


def test_planted_silence_about_refusals_is_seen(tmp_path):
    _, _, spoil = LACKING["whose refusal"]
    with planted(HARNESS_BUGS["refusals-of-nothing"]):
        assert judged(spoil, tmp_path).results["A28"].verdict != "unknown"


def test_planted_trust_in_numbers_is_seen(tmp_path):
    run = write_minimal(None, tmp_path)
    DUMPS["a commit index without end"](run)
    with planted(HARNESS_BUGS["indexes-without-end"]), pytest.raises(OverflowError):
        load_history(run)
