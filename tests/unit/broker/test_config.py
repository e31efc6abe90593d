"""Settings of a broker that concern its group."""

import dataclasses

import pytest

from broker.config import BrokerConfig
from broker.server import load_config
from dledger.config import FlushDiskType
from ledgermq.runtime.config import bind
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus

GROUP = {
    "enable_dledger": True,
    "dledger_group": "g",
    "dledger_self_id": "n0",
    "dledger_peers": "n0-127.0.0.1:1;n1-127.0.0.1:2",
}


def test_preferred_leader_reaches_the_log_and_may_join_later():
    config = BrokerConfig(**GROUP, preferred_leader_id="n7")
    assert config.dledger_config().preferred_leader == "n7"
    assert BrokerConfig(**GROUP).dledger_config().preferred_leader is None


def test_broker_on_its_own_needs_no_group_and_has_the_plain_log_where_rocketmq_has_it():
    config = BrokerConfig(broker_name="b", store_path="data", preferred_leader_id="n1")
    assert (config.self_id, config.registered_name) == ("b", "b")
    assert config.plain_log_config().directory == "data/commitlog"
    assert config.partitions == ("data", "data/commitlog")
    assert config.store_config().max_wait_ack_ms == 5_000
    assert BrokerConfig(**GROUP).store_config().max_wait_ack_ms == 2_500


def test_a_synchronous_master_waits_as_long_as_for_its_slave():
    slow = {"broker_name": "b", "slave_timeout_ms": 8_000, "ha_listen_port": 10912}
    waits = {
        role: BrokerConfig(**slow, broker_role=role).store_config().max_wait_ack_ms
        for role in ("ASYNC_MASTER", "SYNC_MASTER")
    }
    assert waits == {"ASYNC_MASTER": 5_000, "SYNC_MASTER": 8_000}


@pytest.mark.parametrize(
    ("flush", "slave_ms", "waits_ms"),
    [
        ("ASYNC_FLUSH", 1_000, 1_000), ("ASYNC_FLUSH", 8_000, 8_000),
        ("SYNC_FLUSH", 1_000, 5_000), ("SYNC_FLUSH", 8_000, 8_000),
    ],
)  # fmt: skip
def test_with_controllers_a_send_waits_for_the_set_as_long_as_for_a_slave(
    flush, slave_ms, waits_ms
):
    config = BrokerConfig(
        broker_name="b", enable_controller_mode=True, controller_addr="a:1",
        flush_disk_type=FlushDiskType(flush), slave_timeout_ms=slave_ms,
    )  # fmt: skip
    as_master = dataclasses.replace(config, broker_role="ASYNC_MASTER")
    assert config.store_config().max_wait_ack_ms == waits_ms
    assert as_master.store_config().max_wait_ack_ms == waits_ms
    with planted(BY_TESTS["set-waited-for-as-for-a-disk"]):
        assert config.store_config().max_wait_ack_ms == max(slave_ms, 5_000)


def test_more_copies_than_a_synchronous_master_waits_for_are_refused():
    """RocketMQ 5 waits for so many; SEND_OK would say less here than it was asked to."""
    with pytest.raises(FatalError, match=r"inSyncReplicas=3: a SYNC_MASTER .* minInSyncReplicas=3"):
        BrokerConfig(broker_name="b", broker_role="SYNC_MASTER", in_sync_replicas=3)
    with planted(BY_TESTS["copies-promised-and-not-made"]):
        BrokerConfig(broker_name="b", broker_role="SYNC_MASTER", in_sync_replicas=3)
    for role, copies in (("SYNC_MASTER", 2), ("SYNC_MASTER", 1), ("ASYNC_MASTER", 3)):
        BrokerConfig(broker_name="b", broker_role=role, in_sync_replicas=copies)
    BrokerConfig(**GROUP, in_sync_replicas=3)
    BrokerConfig(
        broker_name="b", enable_controller_mode=True, controller_addr="a:1", in_sync_replicas=3,
        broker_role="SYNC_MASTER",
    )  # fmt: skip


def test_two_addresses_of_a_broker_are_of_one_kind():
    for one, other in (("10.0.0.1", "fd00::1"), ("fd00::1", "10.0.0.1")):
        with pytest.raises(FatalError, match=f"brokerIP2={other}: IPv4 or IPv6"):
            BrokerConfig(broker_name="b", broker_ip1=one, broker_ip2=other)
    for one, other in (("10.0.0.1", "ha.example"), ("fd00::1", "fd00::2"), ("10.0.0.1", "")):
        assert BrokerConfig(broker_name="b", broker_ip1=one, broker_ip2=other).ha_addr


def test_keys_of_the_plain_log_are_rocketmqs():
    config = bind(
        BrokerConfig,
        {
            "storePathCommitLog": "/log",
            "flushDiskType": "SYNC_FLUSH",
            "flushIntervalCommitLog": "200",
            "flushCommitLogLeastPages": "8",
            "flushCommitLogThoroughInterval": "7000",
            "syncFlushTimeout": "1234",
            "mappedFileSizeCommitLog": "262144",
            "cutDamagedCommitLog": "true",
            "transientStorePoolEnable": "true",
        },
    )
    assert config.store_config().max_wait_ack_ms == 1234
    log = config.plain_log_config()
    assert (log.directory, log.segment_bytes, log.cut_damaged) == ("/log", 262144, True)
    assert log.flush_disk_type.value == "SYNC_FLUSH"
    assert (log.flush_interval_ms, log.flush_pages_min, log.flush_thorough_ms) == (200, 8, 7000)


def test_what_controllers_say_is_not_taken_from_the_settings(tmp_path):
    file = tmp_path / "broker.conf"  # as RocketMQ 5's samples
    file.write_text("brokerRole=SLAVE\nbrokerId=-1\nenableControllerMode=true\n")
    config = load_config(str(file), {"controllerAddr": "a:1;b:2", "haMasterAddress": "h:1"})
    assert (config.broker_role, config.broker_id, config.ha_master_address) == ("", 0, "")
    assert config.controllers == ["a:1", "b:2"]
    assert config.store_config().late_status is PutStatus.SLAVE_TIMEOUT
    with pytest.raises(FatalError, match="brokerId"):
        load_config(str(file), {"enableControllerMode": "false"})


@pytest.mark.parametrize("value", ["yes", ""])
def test_whether_controllers_are_asked_is_true_or_false(tmp_path, value):
    file = tmp_path / "broker.conf"
    file.write_text(f"brokerRole=ASYNC_MASTER\nenableControllerMode={value}\n")
    with pytest.raises(FatalError, match="enableControllerMode"):
        load_config(str(file), {})


def test_a_broker_is_heard_several_times_before_it_counts_as_dead():
    settings = {"enable_controller_mode": True, "controller_addr": "a:1"}
    with pytest.raises(FatalError, match="more than twice brokerHeartbeatInterval"):
        BrokerConfig(**settings, controller_beat_ms=1_000, controller_silence_ms=2_000)


def test_preferred_leader_is_an_id():
    with pytest.raises(FatalError, match="preferredLeaderId=leader"):
        BrokerConfig(**GROUP, preferred_leader_id="leader")


@pytest.mark.parametrize("node_id", ["n", "n 1", "n-1", "n" * 64 + "1", "n\uff11"])
def test_id_of_a_replica_is_short_and_ends_in_a_number(node_id):
    peers = f"{node_id}-127.0.0.1:1"
    with pytest.raises(FatalError, match="an id that ends in a number"):
        BrokerConfig(
            **{**GROUP, "dledger_self_id": node_id, "dledger_peers": peers}
        ).dledger_config()


def test_recording_of_events_has_a_size_that_is_checked():
    config = BrokerConfig(**GROUP, event_file_bytes=0)
    assert config.dledger_config().event_file_bytes == 0
    with pytest.raises(FatalError, match="event_file_bytes must be 0 or at least"):
        BrokerConfig(**GROUP, event_file_bytes=100)


def test_retention_has_rocketmqs_defaults_and_takes_its_words():
    config = BrokerConfig().retention_config()
    assert (config.interval_ms, config.reserved_ms, config.hours) == (10_000, 259_200_000, (4,))
    assert (config.high_ratio, config.forced_ratio, config.full_ratio) == (0.75, 0.85, 0.9)
    assert (config.cleans_forcibly, config.files_per_round) == (True, 10)
    config = BrokerConfig(
        delete_when=" 4; 16;23 ",
        file_reserved_hours=1,
        disk_max_used_percent=60,
        disk_clean_forcibly_ratio="70",
        disk_warning_level_ratio="0.95",
    ).retention_config()
    assert (config.hours, config.reserved_ms) == ((4, 16, 23), 3_600_000)
    assert (config.high_ratio, config.forced_ratio, config.full_ratio) == (0.6, 0.7, 0.95)
    assert BrokerConfig(delete_when="").retention_config().hours == ()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("delete_when", "24", "deleteWhen=24: hours 00 to 23"),
        ("delete_when", "04,05", "deleteWhen=04,05"),
        ("delete_when", "\u0664", "deleteWhen"),
        ("disk_clean_forcibly_ratio", "0.95", "at most diskSpaceWarningLevelRatio=0.90"),
        ("disk_clean_forcibly_ratio", "much", "diskSpaceCleanForciblyRatio=much: a part from 0.30"),
        ("disk_warning_level_ratio", "1", "diskSpaceWarningLevelRatio=1: a part"),
        ("disk_warning_level_ratio", "100", "percent from 30 to 99 is expected"),
        ("disk_warning_level_ratio", "0.1", "diskSpaceWarningLevelRatio=0.1"),
    ],
)
def test_wrong_settings_of_retention_are_named(field, value, words):
    with pytest.raises(FatalError, match=words):
        BrokerConfig(**{field: value})


def test_keys_of_retention_have_bounds():
    for text in ("fileReservedTime=0", "diskMaxUsedSpaceRatio=96", "cleanResourceInterval=-1"):
        name, _, value = text.partition("=")
        with pytest.raises(FatalError, match=f"{text}: an integer from"):
            bind(BrokerConfig, {name: value})
    # Accepted as RocketMQ's, of no use here: nothing is deleted slowly or held by a reader.
    names = (
        "deleteCommitLogFilesInterval", "destroyMapedFileIntervalForcibly",
        "redeleteHangedFileInterval",
    )  # fmt: skip
    bind(BrokerConfig, dict.fromkeys(names, "100"))
