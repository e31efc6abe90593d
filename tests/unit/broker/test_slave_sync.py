"""A slave takes over its master's tables, as far as they can be, and keeps what it knows better."""

import asyncio

import msgspec
import pytest

from broker.limits import TOPIC_QUEUES_MAX
from broker.processor.groups import GroupsProcessor
from broker.processor.slave_tables import OFFSETS_PER_STEP, SlaveTablesProcessor
from broker.slave_sync import told as told_module
from broker.slave_sync.changes import ROWS_PER_STEP as CHANGES_PER_STEP
from broker.slave_sync.service import PAGES_MAX
from broker.slave_sync.told import ROWS_PER_STEP, Told
from broker.state.kinds import StateKind
from broker.state.steps import at_once
from broker.state.subscription import SYSTEM_GROUPS, GroupChange, SubscriptionGroupConfig
from broker.stats import pages as pages_module
from broker.stats.walks import Walks
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import Reach
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.slave_bench import KEY, MASTER, Master, Slave, read_tables, recorded


def test_the_tables_of_a_real_master_are_read():
    told = read_tables({**recorded(), "28": b'{"table":{"commitLogMaxOffset":"7"}}'})
    assert len(told.topics) > 20
    assert len(told.groups) > 5
    assert told.offsets["fx_orderly_d5qit@cg_orderly"] == {0: 40, 1: 20}
    assert told.delays == {0: 2, 1: 1}
    assert told.left_out == 0


def test_a_slave_takes_over_all_tables():
    slave = Slave(Master())
    slave.follow()
    assert slave.tables.topics.get("orders").config.perm == 6
    assert slave.tables.groups.get("g") is not None
    assert slave.offset() == 5
    assert slave.delays.delivered_before(2) == 7
    assert slave.sync.rounds == 1


def check_what_a_master_changes_and_removes_follows():
    master = Master()
    slave = Slave(master)
    slave.follow()
    master.topics = {"bills": TopicConfig(topic_name="bills", read_queue_nums=3)}
    master.groups = {}
    slave.follow()
    assert slave.tables.topics.get("orders") is not None, "one answer may be older than the log"
    assert slave.tables.groups.get("g") is not None
    slave.follow()
    assert slave.tables.topics.get("orders") is None
    assert slave.tables.groups.get("g") is None
    assert slave.tables.topics.get("bills").read_queues == 3
    assert slave.tables.topics.get("SCHEDULE_TOPIC_XXXX") is not None
    assert slave.tables.groups.get("TOOLS_CONSUMER") is not None


def test_what_a_master_changes_and_removes_follows():
    check_what_a_master_changes_and_removes_follows()
    with planted(BY_TESTS["group-gone-at-first-sight"]), pytest.raises(AssertionError):
        check_what_a_master_changes_and_removes_follows()


def check_progress_waits_for_the_log():
    master = Master(log_end=2_000)
    slave = Slave(master)
    slave.follow()
    assert slave.tables.topics.get("orders") is not None
    assert (slave.offset(), slave.delays.delivered_before(2)) == (None, 0)
    slave.log.end = 2_000
    slave.follow()
    assert (slave.offset(), slave.delays.delivered_before(2)) == (None, 0), "it is not dispatched"
    slave.log.applied = 2_000
    slave.follow()
    assert (slave.offset(), slave.delays.delivered_before(2)) == (5, 7)


def test_offsets_and_delays_wait_until_the_log_has_come_so_far():
    check_progress_waits_for_the_log()


def test_planted_progress_ahead_of_the_log_is_found():
    with planted(BY_TESTS["slave-ahead-of-its-log"]), pytest.raises(AssertionError):
        check_progress_waits_for_the_log()


def test_a_slave_that_is_always_behind_gets_what_was_said_first():
    master = Master(log_end=2_000)
    slave = Slave(master)
    slave.follow()
    master.log_end, master.offsets = 3_000, {KEY: {0: 9}}
    slave.follow()
    slave.log.end = slave.log.applied = 2_500
    slave.follow()
    assert slave.offset() == 5


LIES = {
    "no table": {21: b"[1,2]"},
    "no json": {43: b"\xff\xfe"},
    "no end of the log": {28: b'{"table":{}}'},
    "an offset that is no int64": {43: b'{"offsetTable":{"a@b":{"0":99999999999999999999}}}'},
    "too many groups": {
        201: msgspec.json.encode(
            {"subscriptionGroupTable": {f"g{i}": {"groupName": f"g{i}"} for i in range(100_001)}}
        )
    },
}


@pytest.mark.parametrize("bodies", LIES.values(), ids=LIES)
def test_a_master_that_says_what_cannot_be_changes_nothing(bodies, caplog):
    slave = Slave(Master())
    slave.follow()
    master = Master()
    master.topics["late"] = TopicConfig(topic_name="late")
    master.bodies = bodies
    slave.sync._client = master
    before = slave.state()
    slave.follow(times=3)
    assert slave.state() == before
    lines = [one for one in caplog.messages if "tables_do_not_follow" in one]
    assert len(lines) == 1


def test_a_master_that_is_away_is_told_of_once_and_changes_nothing(caplog):
    master = Master()
    slave = Slave(master)
    slave.follow()
    before = slave.state()
    master.is_away = True
    slave.follow(times=3)
    assert slave.state() == before
    assert sum("tables_do_not_follow" in one for one in caplog.messages) == 1


def check_a_master_that_lost_its_log_says_nothing():
    master = Master()
    slave = Slave(master)
    slave.follow()
    before = slave.state()
    master.log_end, master.topics, master.offsets = 10, {}, {KEY: {0: 0}}
    slave.follow(times=3)
    assert slave.state() == before


def test_a_master_that_lost_its_log_says_nothing():
    check_a_master_that_lost_its_log_says_nothing()


def test_planted_belief_in_a_wiped_master_is_found():
    with planted(BY_TESTS["wiped-master-believed"]), pytest.raises(AssertionError):
        check_a_master_that_lost_its_log_says_nothing()


def test_rows_that_cannot_be_are_left_out_and_the_others_taken():
    master = Master()
    master.topics["a b"] = TopicConfig(topic_name="a b")
    master.topics["other"] = TopicConfig(topic_name="another")
    master.topics["wide"] = TopicConfig(topic_name="wide", read_queue_nums=TOPIC_QUEUES_MAX + 1)
    master.groups["x y"] = SubscriptionGroupConfig(group_name="x y")
    master.offsets |= {"no-group": {0: 1}, "orders@g g": {0: 1}, "orders@h": {-1: 1}}
    master.delays[0] = 4
    slave = Slave(master)
    slave.follow()
    assert slave.tables.topics.get("orders") is not None
    assert {"a b", "other", "wide"}.isdisjoint(slave.tables.topics.entries)
    assert slave.tables.groups.get("x y") is None
    assert slave.offset("orders@h", -1) is None
    assert slave.offset() == 5


def test_topics_that_are_settings_stay_as_they_are():
    master = Master()
    slave = Slave(master)
    before = slave.tables.topics.get("TBW102").config
    master.topics["TBW102"] = TopicConfig(topic_name="TBW102", read_queue_nums=1)
    slave.follow(times=2)
    assert slave.tables.topics.get("TBW102").config == before


def test_a_slave_has_no_model_of_topics_unless_its_own_settings_give_it_one():
    master = Master()
    slave = Slave(master, auto_create_topic_enable=False)
    master.topics["TBW102"] = TopicConfig(topic_name="TBW102", perm=7)
    slave.follow(times=2)
    assert slave.tables.topics.get("orders") is not None
    assert slave.tables.topics.get("TBW102") is None


def test_an_offset_moves_back_when_the_master_says_so_twice():
    master = Master()
    slave = Slave(master)
    slave.follow()
    master.offsets = {KEY: {0: 2}}
    slave.follow()
    assert slave.offset() == 5, "the answer may be older than what the log brought"
    slave.follow()
    assert slave.offset() == 2


def test_delays_never_go_back():
    master = Master()
    slave = Slave(master)
    slave.follow()
    master.delays = {3: 1}
    slave.follow(times=3)
    assert slave.delays.delivered_before(2) == 7


def check_newer_offsets_survive_the_return_of_the_master():
    master = Master()
    slave = Slave(master)
    slave.follow()
    master.is_away = True
    slave.follow()
    assert slave.own.commit("g", "orders", 0, 9)
    assert slave.offset() == 9
    master.is_away = False
    slave.follow()
    assert slave.offset() == 9
    assert master.commits == [(KEY, 0, 9)]
    slave.follow()
    assert slave.offset() == 9
    assert master.commits == [(KEY, 0, 9)]
    assert not at_once(slave.own.compare_steps({}))


def test_offsets_committed_here_survive_and_go_back_to_the_master():
    check_newer_offsets_survive_the_return_of_the_master()


def test_planted_overwriting_of_newer_offsets_is_found():
    with planted(BY_TESTS["offset-sync-overwrites"]), pytest.raises(AssertionError):
        check_newer_offsets_survive_the_return_of_the_master()


def check_what_comes_after_an_offset_was_given_back_goes_back_too():
    """A consumer that is slow to return commits here again: nobody tells it an older offset."""
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    slave.follow()
    for later in (12, 15):
        slave.own.commit("g", "orders", 0, later)
        slave.follow()
        assert slave.offset() == later
        assert master.commits[-1] == (KEY, 0, later)
    slave.own.commit("g", "orders", 0, 17)
    master.offsets = {KEY: {0: 16}}  # and now it has returned
    slave.follow(times=2)
    assert slave.offset() == 16
    assert master.commits[-1] == (KEY, 0, 15)


def test_what_comes_after_an_offset_was_given_back_goes_back_too():
    check_what_comes_after_an_offset_was_given_back_goes_back_too()


def test_planted_forgetting_of_what_comes_later_is_found():
    with planted(BY_TESTS["given-offset-hides-the-next"]), pytest.raises(AssertionError):
        check_what_comes_after_an_offset_was_given_back_goes_back_too()


def test_a_master_that_died_with_what_it_was_given_gets_it_again():
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    slave.follow()
    master.offsets = {KEY: {0: 5}}
    slave.follow(times=2)
    assert master.commits == [(KEY, 0, 9)] * 2
    assert slave.offset() == 9


def check_an_offset_before_the_one_at_the_master_stays_here():
    """Somebody had come farther at the master when it went away: the slave's reader is late."""
    master = Master()
    slave = Slave(master)
    slave.follow()
    master.is_away = True
    slave.follow()
    assert slave.own.commit("g", "orders", 0, 2)
    assert slave.offset() == 2
    master.is_away = False
    slave.follow(times=2)
    assert master.commits == []
    assert slave.offset() == 5


def test_an_offset_before_the_one_at_the_master_is_not_given_back(caplog):
    caplog.set_level("INFO")
    check_an_offset_before_the_one_at_the_master_stays_here()
    assert caplog.text.count("event=offsets_behind_the_masters count=1") == 1


def test_planted_return_of_older_offsets_is_found():
    with planted(BY_TESTS["slave-gives-older-back"]), pytest.raises(AssertionError):
        check_an_offset_before_the_one_at_the_master_stays_here()


def check_what_was_said_at_the_master_since_then_counts():
    for said in (2, 7, 12):  # moved back, somebody began anew, somebody came farther
        master = Master()
        slave = Slave(master)
        slave.follow()
        slave.own.commit("g", "orders", 0, 9)
        master.offsets = {KEY: {0: said}}
        slave.follow(times=2)
        assert slave.offset() == said
        assert master.commits == []


def test_what_was_said_at_the_master_since_then_counts():
    check_what_was_said_at_the_master_since_then_counts()


def test_planted_return_of_offsets_after_a_reset_is_found():
    with planted(BY_TESTS["reset-undone-by-a-slave"]), pytest.raises(AssertionError):
        check_what_was_said_at_the_master_since_then_counts()


def check_an_offset_is_forgotten_only_for_another_one():
    """The master has a newer one, of which this log has still to come, and goes away again."""
    for before in ({KEY: {0: 5}}, {}):
        master = Master()
        master.offsets = before
        slave = Slave(master)
        slave.follow()
        slave.own.commit("g", "orders", 0, 9)
        master.offsets, master.log_end = {KEY: {0: 12}}, 2_000
        slave.follow()
        slave.followed = ""
        slave.follow()
        assert slave.offset() == 9
        slave.followed, slave.log.end, slave.log.applied = MASTER, 2_000, 2_000
        slave.follow()
        assert slave.offset() == 12
        assert master.commits == []


def test_an_offset_is_forgotten_only_for_another_one():
    check_an_offset_is_forgotten_only_for_another_one()


def test_planted_forgetting_of_what_has_no_other_yet_is_found():
    with planted(BY_TESTS["slave-forgets-too-early"]), pytest.raises(AssertionError):
        check_an_offset_is_forgotten_only_for_another_one()


def test_a_slave_that_is_behind_gives_back_once_it_has_come_so_far():
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    master.log_end = 2_000
    slave.follow()
    assert master.commits == []
    slave.log.end = slave.log.applied = 2_000
    asyncio.run(slave.sync._take_progress())
    assert master.commits == [(KEY, 0, 9)]
    assert slave.offset() == 9


def test_offsets_of_a_group_that_the_master_does_not_know_go_back_too():
    master = Master()
    master.offsets = {}
    slave = Slave(master)
    slave.own.commit("g", "orders", 1, 4)
    slave.follow(times=2)
    assert master.commits == [(KEY, 1, 4)]


def test_offsets_that_the_master_lost_when_it_died_go_back_too():
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    master.offsets = {}
    slave.follow(times=2)
    assert master.commits == [(KEY, 0, 9)]
    assert slave.offset() == 9


def test_own_offsets_outlive_a_restart_and_a_promotion():
    slave = Slave(Master())
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    slave.own.commit("g", "orders", 0, 10)
    files = slave.state()
    again = Slave(Master())
    for name, table in again.tables.state.tables.items():
        table.restore(files[name])
    assert again.offset() == 10
    assert msgspec.json.decode(again.tables.offsets.take_proposals()[0]) == {KEY: {"0": 10}}
    master = Master()
    again.sync._client = master
    again.follow()
    assert master.commits == [(KEY, 0, 10)]


def test_changes_are_records_of_state():
    slave = Slave(Master())
    slave.follow()
    kinds = (StateKind.TOPIC, StateKind.GROUP, StateKind.OFFSET, StateKind.DELIVERED)
    assert [slave.tables.state.revisions[kind] for kind in kinds] == [1, 1, 1, 1]
    slave.follow(times=3)
    assert [slave.tables.state.revisions[kind] for kind in kinds] == [1, 1, 1, 1]


def test_what_a_slave_asks_is_answered_as_it_reads_it():
    """43 and 45 of ours, read by a slave of ours; RocketMQ's reads quoted numbers as well."""
    slave = Slave(Master())
    slave.follow()
    tables = slave.tables
    tables.offsets.commit("g", "orders", 1, 8)
    tables.offsets.commit("h", "orders", 0, 1)
    answers = SlaveTablesProcessor(tables.state, tables.offsets, Walks(SystemClock()))
    request = RemotingCommand(code=43)
    body = asyncio.run(answers.handle_offsets(None, request)).body
    assert msgspec.json.decode(body) == {
        "dataVersion": {"counter": 0, "timestamp": 0},
        "offsetTable": {KEY: {"0": 5, "1": 8}, "orders@h": {"0": 1}},
    }
    body = answers.handle_delays(None, RemotingCommand(code=45)).body
    assert msgspec.json.decode(body) == {"offsetTable": {"3": 7}}


def test_many_offsets_are_told_in_slices():
    slave = Slave(Master())
    for number in range(20_000):
        slave.tables.offsets.commit(f"g{number % 400}", f"t{number}", 0, number)
    tables = slave.tables
    answers = SlaveTablesProcessor(tables.state, tables.offsets, Walks(SystemClock()))
    turns = 0

    async def ask():
        nonlocal turns
        task = asyncio.ensure_future(answers.handle_offsets(None, RemotingCommand(code=43)))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return task.result()

    answer = asyncio.run(ask())
    assert answer.code == 0
    assert len(msgspec.json.decode(answer.body)["offsetTable"]) == 20_000
    assert turns > 30


def groups_that_are_told():
    """Return how many of 20,000 consumer groups 201 tells of."""
    tables = Slave(Master()).tables
    for number in range(20_000):
        group = SubscriptionGroupConfig(group_name=f"g{number}")
        change = msgspec.json.encode(GroupChange(group, 1))
        tables.state.apply(0, StateKind.GROUP, change)
    answers = GroupsProcessor(
        tables.groups, None, lambda: True, Walks(SystemClock()), lambda _: None
    )
    answer = asyncio.run(answers.handle_all(None, RemotingCommand(code=201)))
    if answer.code:
        return 0
    return len(
        msgspec.json.decode(answer.body)["subscriptionGroupTable"].keys() - set(SYSTEM_GROUPS)
    )


def test_slaves_are_told_of_all_groups():
    assert groups_that_are_told() == 20_000
    with planted(BY_TESTS["a-row-for-each-group"]):
        assert groups_that_are_told() == 0


def offsets_of_a_step():
    """Return how many offsets one step of the answer to 43 has at most, of keys with many each."""
    slave = Slave(Master())
    for number in range(30 * OFFSETS_PER_STEP):
        key, queue = divmod(number, OFFSETS_PER_STEP)
        slave.tables.offsets.commit(f"g{key}", "wide", queue, number)
    answers = SlaveTablesProcessor(slave.tables.state, slave.tables.offsets, Walks(SystemClock()))
    steps = [msgspec.json.decode(b"{" + part + b"}") for _, part in answers._parts(0)]
    counts = [sum(map(len, step.values())) for step in steps]
    assert sum(counts) == 30 * OFFSETS_PER_STEP
    return max(counts)


def test_keys_with_many_offsets_have_steps_of_their_own():
    assert offsets_of_a_step() == OFFSETS_PER_STEP
    with planted(BY_TESTS["slave-offsets-by-their-keys"]):
        assert offsets_of_a_step() == 30 * OFFSETS_PER_STEP


def test_a_body_of_more_values_than_answers_may_have_is_not_read(monkeypatch):
    monkeypatch.setattr(told_module, "ANSWER", Reach(10_000, 10_000, 100))
    bodies = recorded() | {"28": b'{"table":{"commitLogMaxOffset":"1"}}'}
    rows = b",".join(b'"%d":0' % number for number in range(101))
    with pytest.raises(RemoteProtocolError, match="values, more than 100"):
        read_tables(bodies | {"21": b'{"topicConfigTable":{%s}}' % rows})


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        ("45", b'{"offsetTable":{%s}}' % b",".join(b'"%d":1' % n for n in range(9_000)), "plenty"),
        ("28", b'{"table":{"commitLogMaxOffset":"0","x":"%s"}}' % (b"x" * 65_536), "plenty"),
        ("43", b'{"offsetTable":{"t@g":{%s}}}' % b",".join([b'"0":1234567'] * 190_000), "a row of"),
    ],
)
def test_what_would_be_read_in_one_long_turn_is_refused(code, body, why):
    sound = {
        "21": b'{"topicConfigTable":{}}', "201": b'{"subscriptionGroupTable":{}}',
        "43": b'{"offsetTable":{}}', "45": b"", "28": b'{"table":{"commitLogMaxOffset":"0"}}',
    }  # fmt: skip
    read_tables(sound)
    with pytest.raises(RemoteProtocolError, match=why):
        read_tables(sound | {code: body})


def test_a_body_without_the_tables_is_refused():
    with pytest.raises(RemoteProtocolError):
        read_tables(dict.fromkeys(("21", "201", "43", "45", "28"), b"{}"))


def groups_that_follow(monkeypatch):
    """Return how many groups and offsets a slave has of 3,000, told in pages of 32 KiB."""
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 32 * 1024)
    master, slave = Master(), Slave(Master())
    other = Slave(master)
    for number in range(3_000):
        config = SubscriptionGroupConfig(group_name=f"group-{number}")
        change = msgspec.json.encode(GroupChange(config, 1))
        slave.tables.state.apply(-1, StateKind.GROUP, change)
        rows = msgspec.json.encode({f"orders@group-{number}": {"0": number}})
        slave.tables.state.apply(-1, StateKind.OFFSET, rows)
    walks = Walks(SystemClock())
    groups = GroupsProcessor(slave.tables.groups, None, lambda: True, walks, lambda _: None)
    offsets = SlaveTablesProcessor(slave.tables.state, slave.tables.offsets, walks)
    master.paged = {201: groups.handle_all, 43: offsets.handle_offsets}
    other.follow()
    return len(other.tables.groups) - len(SYSTEM_GROUPS), len(other.tables.offsets)


def test_tables_that_are_longer_than_an_answer_follow_page_by_page(monkeypatch):
    assert groups_that_follow(monkeypatch) == (3_000, 3_000)


def test_planted_reading_of_the_first_page_alone_is_found(monkeypatch):
    with planted(BY_TESTS["first-page-is-all"]):
        groups, offsets = groups_that_follow(monkeypatch)
        assert groups < 3_000 > offsets


@pytest.mark.parametrize("following", ["0", "-1", "x", "9" * 30, "\u0661"])
def test_pages_that_do_not_get_on_are_refused(following):
    async def say(_connection, _command):
        body = b'{"subscriptionGroupTable":{}}'
        return RemotingCommand(code=0, body=body, ext_fields={"nextRow": following})

    master = Master()
    slave = Slave(master)
    master.paged = {201: say}
    slave.follow()
    assert slave.sync.rounds == 0


def pages_asked_of_a_master_without_end():
    asked = 0

    async def say(_connection, _command):
        nonlocal asked
        asked += 1
        body = b'{"subscriptionGroupTable":{}}'
        following = {"nextRow": str(asked)} if asked < 5_000 else {}
        return RemotingCommand(code=0, body=body, ext_fields=following)

    master = Master()
    slave = Slave(master)
    master.paged = {201: say}
    slave.follow()
    return asked, slave.sync.rounds


def test_pages_without_end_are_refused():
    assert pages_asked_of_a_master_without_end() == (PAGES_MAX, 0)
    with planted(BY_TESTS["pages-without-end"]):
        assert pages_asked_of_a_master_without_end()[0] > PAGES_MAX


def rows_of_a_step(monkeypatch):
    """Return how many rows of a table are read in one turn of the loop at most."""
    counts = [0]

    def is_good(_name, _row):
        counts[-1] += 1
        return True

    monkeypatch.setattr(told_module._GROUPS, "_is_good", is_good)
    groups = {f"g{n}": {"groupName": f"g{n}"} for n in range(5 * ROWS_PER_STEP)}
    body = msgspec.json.encode({"subscriptionGroupTable": groups})
    steps = told_module._GROUPS.read([body])
    while next(steps, "the end") is None:
        counts.append(0)
    assert sum(counts) == 5 * ROWS_PER_STEP
    return max(counts)


def test_what_a_master_tells_is_read_in_slices(monkeypatch):
    assert rows_of_a_step(monkeypatch) == ROWS_PER_STEP
    with planted(BY_TESTS["told-in-one-turn"]):
        assert rows_of_a_step(monkeypatch) == 5 * ROWS_PER_STEP


def test_rows_that_did_not_change_are_looked_at_in_slices():
    master = Master()
    master.offsets = {f"orders@g{n}": {0: n} for n in range(5_000)}
    master.groups = {f"g{n}": SubscriptionGroupConfig(group_name=f"g{n}") for n in range(5_000)}
    slave = Slave(master)
    slave.follow()
    told = Told(
        topics=master.topics, groups=master.groups, offsets=master.offsets, delays={},
        log_end=1_000, left_out=0,
    )  # fmt: skip
    changes = slave.sync._changes
    for steps in (changes.of_names(told, 1), changes.of_progress(told)):
        assert set(taken := list(steps)) == {None}
        assert len(taken) >= 5_000 // CHANGES_PER_STEP
