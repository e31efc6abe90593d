"""What is remembered of a log, and what is noted of it, is what the log says."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from broker.state.topic_config import TopicTable
from dledger.codec.properties import Checkpoint, encode_checkpoint, encode_mark
from dledger.replicated_log import ReplicatedLog
from ledgermq.remoting.protocol.bodies import TopicConfig
from sim.disk import SimDisk
from sim.oracles.base import Findings, Violation
from sim.oracles.durable import Durable
from sim.oracles.model import Statement
from sim.oracles.remembered import LOOK_STEP, Remembered
from sim.oracles.replica import NO_KEY, Change, Mark
from sim.oracles.saved_tables import SavedTables
from sim.oracles.truth import Truth
from sim.rng import SplitRng

BYTES = 100
CUT, GROWN = Change(NO_KEY, NO_KEY, 4, 9), Change(NO_KEY, NO_KEY, 9, 9)


def store(*, ends=(), spans=(), damaged=()):
    """A log of entries 2 to 9, and what is remembered of it."""
    return SimpleNamespace(
        first_index=2, last_index=9, _ends=dict(ends), recent=SimpleNamespace(_spans=spans),
        corruption=SimpleNamespace(damaged=dict.fromkeys(damaged)),
    )  # fmt: skip


def replica(log, topics=None, places=(), runs=((2, 1),)):
    """A replica; ``places``: positions looked up before; ``runs``: where terms begin."""
    mode = SimpleNamespace()
    if places:
        mode.replicated = ReplicatedLog(Mock())
        mode.replicated._walked = mode.replicated._was_committed = places[0]
        mode.replicated._is_committed = places[-1]
    state = SimpleNamespace(
        log=SimpleNamespace(
            _run_indexes=[one for one, _ in runs], _run_terms=[term for _, term in runs],
            handed_index=9,
        )
    )  # fmt: skip
    marks = {index: Mark(1, index * BYTES, BYTES, 0) for index in range(2, 10)}
    tables = SimpleNamespace(topics=topics or TopicTable((), 0))
    return SimpleNamespace(
        name="n0", base=2, last_index=9, store=log, mark=marks.get, is_corrupt=False,
        controller=SimpleNamespace(tables=tables, mode=mode), state=state,
    )  # fmt: skip


def span(first, last, *, term=1, position=None):
    at = first * BYTES if position is None else position
    return SimpleNamespace(first_index=first, last_index=last, term=term, position=at)


@pytest.mark.parametrize(
    ("log", "is_sound"),
    [
        (store(ends=[(0, 55), (9, 1_000)], spans=[span(8, 9)], damaged=[2]), True),
        (store(ends=[(9, 999)]), False),
        (store(ends=[(10, 1_100)]), False),
        (store(spans=[span(8, 10)]), False),
        (store(spans=[span(8, 9, term=2)]), False),
        (store(spans=[span(8, 9, position=1)]), False),
        (store(damaged=[1]), False),
        (store(damaged=[10]), False),
    ],
)
def test_what_is_remembered_is_what_the_log_says(log, is_sound):
    oracle, one = Remembered(), replica(log)
    oracle.on_boot(one)
    oracle.on_change(one, GROWN)  # nothing was cut: it is looked at later
    if is_sound:
        oracle.on_change(one, CUT)
    else:
        with pytest.raises(Violation):
            oracle.on_change(one, CUT)


@pytest.mark.parametrize(
    ("places", "is_sound"),
    [
        (((500, 5), (1_000, 10)), True),
        (((450, 5),), True),
        (((500, 6),), False),
        (((400, 5),), False),
        (((1_000, 11),), False),
    ],
)
def test_places_that_were_looked_up_are_those_of_the_log(places, is_sound):
    oracle, one = Remembered(), replica(store(), places=places)
    oracle.on_boot(one)
    if is_sound:
        oracle.on_change(one, CUT)
    else:
        with pytest.raises(Violation, match="begins at"):
            oracle.on_change(one, CUT)


@pytest.mark.parametrize("runs", [((2, 2),), ((2, 1), (5, 2)), ((3, 1),)])
def test_terms_begin_where_the_log_says(runs):
    oracle, one = Remembered(), replica(store(), runs=runs)
    oracle.on_boot(one)
    with pytest.raises(Violation, match="remembers that term"):
        oracle.on_change(one, CUT)


@pytest.mark.parametrize(
    ("kept", "counted", "is_sound"),
    [(None, 0, True), (True, 0, True), (b"{}", 0, False), (None, 1, False)],
)
def test_the_text_of_topics_is_that_of_the_table(kept, counted, is_sound):
    topics = TopicTable((TopicConfig(topic_name="orders"),), 0)
    topics.encode()
    topics._encoded = topics._encoded if kept is True else kept
    topics.encoded_bytes += counted
    oracle, one = Remembered(), replica(store(), topics)
    oracle.on_boot(one)
    if is_sound:
        oracle.on_change(one, CUT)
    else:
        with pytest.raises(Violation, match="topics"):
            oracle.on_change(one, CUT)


@pytest.mark.parametrize("why", ["it begins elsewhere", "it is time to look"])
def test_it_is_looked_at_where_nothing_was_cut(why):
    oracle, one = Remembered(), replica(store(damaged=[1]))
    oracle.on_boot(one)
    for _ in range(LOOK_STEP - 1):
        oracle.on_change(one, GROWN)
    if why == "it begins elsewhere":
        oracle = Remembered()
        oracle.on_boot(SimpleNamespace(name="n0", base=0))
    with pytest.raises(Violation, match="takes entry 1 for damaged"):
        oracle.on_change(one, GROWN)


@pytest.mark.parametrize(("is_synced", "is_sound"), [(True, True), (False, False)])
def test_behind_a_cut_no_loss_of_power_brings_back_that_more_was_synced(is_synced, is_sound):
    disk, checkpoint = SimDisk(SplitRng(1)), Checkpoint(3, 2)
    disk.make_directories("/d")
    disk.replace("/d/checkpoint", encode_checkpoint(checkpoint))
    file = disk.open("/d/synced", size=len(encode_mark(checkpoint, 9)))
    file.pwrite(0, (encode_mark(checkpoint, 9),))
    file.fdatasync()
    file.pwrite(0, (encode_mark(checkpoint, 4),))
    if is_synced:
        file.fdatasync()
    node = SimpleNamespace(config=SimpleNamespace(directory="/d", data_segment_bytes=4_096))
    one = SimpleNamespace(
        name="n0", disk=disk, node=node, store=SimpleNamespace(last_index=4), is_corrupt=False,
        checkpoint_path="/d/checkpoint",
    )  # fmt: skip
    oracle = Durable(Truth(("n0",)), {}, is_sync=False)
    if is_sound:
        oracle._check_lowered(one, 4)
    else:
        with pytest.raises(Violation, match="synced up to 9"):
            oracle._check_lowered(one, 4)


TABLES = {
    "consumerOffset": b'{"offsetTable":{"orders@g":{"0":7}}}',
    "delayOffset": b'{"offsetTable":{"3":5}}',
    "topics": b'{"topicConfigTable":{"orders":{"topicName":"orders","perm":6,"order":false}}}',
    "subscriptionGroup": b'{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":16}}}',
}
SAID = (
    ("topic", {"timestamp": 1, "config": {"topicName": "orders", "perm": 6}}),
    ("group", {"timestamp": 1, "config": {"groupName": "g"}}),
    ("offset", {"orders@g": {"0": 7}}),
    ("delivered", [2, 4]),
    ("offset", {"orders@g": {"0": 8}}),
)


def saved(spoiled=None, *, index=3, ahead=0):
    """Save tables as of an entry; return what is found."""
    truth, findings, disk = Truth(("n0",)), Findings(), SimDisk(SplitRng(1), host="n0")
    for number, (kind, content) in enumerate(SAID):
        truth.statements.append(Statement(number, 0, kind, content))
        truth.state_indexes.append(number)
        truth.committed.append(None)
    SavedTables(disk, truth, findings, lambda: ahead)
    disk.make_directories("/config")
    for name, text in TABLES.items():
        disk.replace(f"/config/{name}.json", text if name != spoiled else b"{%s}" % empty(text))
    disk.replace("/config/appliedIndex.json", b'{"appliedIndex":%d}' % index)
    return findings.first


def empty(text):
    """Return the member of a table, without a row."""
    return text[1 : text.index(b":")] + b":{}"


def test_tables_that_have_all_they_include_may_be_saved():
    assert saved() is None


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_lacks_a_row_may_not_be_saved(name):
    assert saved(name).oracle == SavedTables.name


def test_a_table_that_lacks_a_change_may_not_be_saved():
    assert saved(index=4).oracle == SavedTables.name


def test_tables_that_may_be_ahead_after_a_crash_are_not_judged():
    assert saved("topics", index=3, ahead=4) is None
    assert saved("topics", index=9) is None  # nobody knows what that entry says
