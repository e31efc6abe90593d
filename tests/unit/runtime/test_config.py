"""Properties files bound to configuration classes."""

import logging
from dataclasses import dataclass
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.runtime.config import Properties, bind, key, load_properties, parse_properties_text
from ledgermq.runtime.config_keys import ROCKETMQ_KEYS
from ledgermq.runtime.errors import FatalError


class Flush(Enum):
    ASYNC_FLUSH = 1
    SYNC_FLUSH = 2


@dataclass(frozen=True, kw_only=True)
class Settings:
    port: int = key("listenPort", 10911, low=1, high=65535)
    name: str = key("brokerName", "b")
    flush: Flush = key("flushDiskType", Flush.ASYNC_FLUSH)  # noqa: RUF009 - a dataclass field
    auto: bool = key("autoCreateTopicEnable", default=True)
    floor: int = key("fileReservedTime", 72, low=1)
    any_number: int = key("brokerPermission", 6)
    maybe: str | None = key("brokerIP1", None)
    derived: int = 5

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("brokerName: bad is no name")


def test_java_properties_are_read_as_java_reads_them():
    text = (
        "# comment\n! other comment\n\nbrokerName = a b \n  listenPort:1\r\n"
        "path\\ with\\:colon  C:\\\\x\\t\\u0041\nlong=one,\\\n   two\\\n\tthree\nempty\nlast=x\\"
    )
    properties = parse_properties_text(text, "f.conf")
    assert properties == {
        "brokerName": "a b",
        "listenPort": "1",
        "path with:colon": "C:\\x\tA",
        "long": "one,twothree",
        "empty": "",
        "last": "x",
    }
    assert properties.place("brokerName") == "f.conf:4"
    assert properties.place("long") == "f.conf:7"
    assert properties.place("last") == "f.conf:11"
    assert properties.place("absent") == "f.conf"


def test_a_mark_of_the_encoding_at_the_beginning_is_no_part_of_the_file(tmp_path):
    """Java's reader makes a key of it that RocketMQ overlooks, and of a comment behind it, too."""
    for begin in (b"# comment\r\n", b""):
        file = tmp_path / "broker.conf"
        file.write_bytes(b"\xef\xbb\xbf" + begin + b"brokerName=a\r\n")
        assert load_properties(str(file)) == {"brokerName": "a"}


@given(st.text())
def test_any_text_is_a_properties_file(text):
    for name, value in parse_properties_text(text).items():
        assert isinstance(name, str)
        assert isinstance(value, str)


def test_a_file_is_bound_to_types_and_the_command_line_wins(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text(
        "listenPort=1\nbrokerName=x\nflushDiskType=sync_flush\nautoCreateTopicEnable=FALSE\n"
        "brokerIP1=10.0.0.1\n"
    )
    settings = bind(Settings, load_properties(str(file)), {"listenPort": "2"})
    assert settings == Settings(
        port=2, name="x", flush=Flush.SYNC_FLUSH, auto=False, maybe="10.0.0.1"
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("listenPort=70000", "an integer from 1 to 65535 is expected"),
        ("listenPort=ten", "an integer from 1 to 65535 is expected"),
        ("fileReservedTime=0", "an integer from 1 to any is expected"),
        ("brokerPermission=", "an integer is expected"),
        ("flushDiskType=NEVER", "one of ASYNC_FLUSH, SYNC_FLUSH is expected"),
        ("autoCreateTopicEnable=yes", "true or false is expected"),
    ],
)
def test_a_wrong_value_names_file_line_key_value_and_what_is_expected(line, what):
    with pytest.raises(FatalError) as caught:
        bind(Settings, parse_properties_text(f"\n{line}", "broker.conf"))
    assert caught.value.message == f"broker.conf:2: {line}: {what}"
    assert caught.value.exit_code == 2


def test_an_unknown_key_names_the_nearest_known_one():
    with pytest.raises(FatalError) as caught:
        bind(Settings, parse_properties_text("a\n", "f"), {})
    assert caught.value.message == "f:1: unknown key a=: no such key; remove the line"
    with pytest.raises(FatalError, match="command line: unknown key listenprt=5: did you mean"):
        bind(Settings, {}, {"listenprt": "5"})
    with pytest.raises(FatalError, match="did you mean slaveReadEnable"):
        bind(Settings, {"slaveReadEnabel": "true"})


def test_a_key_that_only_rocketmq_knows_is_accepted_with_one_log_line(caplog):
    with caplog.at_level(logging.INFO):
        bind(Settings, {"brokerRole": "ASYNC_MASTER", "slaveReadEnable": "false"})
    assert [record.getMessage() for record in caplog.records] == [
        "event=config_keys_unused keys=brokerRole,slaveReadEnable"
    ]


def test_a_rule_between_keys_is_told_as_fatal():
    with pytest.raises(FatalError, match="f: brokerName: bad is no name"):
        bind(Settings, Properties("f", {"brokerName": "bad"}))


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(FatalError, match=r"absent\.conf: cannot be read: No such file"):
        load_properties(str(tmp_path / "absent.conf"))
    (tmp_path / "big.conf").write_bytes(bytes(1024 * 1024 + 1))
    with pytest.raises(FatalError, match=r"big\.conf: larger than"):
        load_properties(str(tmp_path / "big.conf"))


def test_what_has_no_end_is_no_configuration_file():
    with pytest.raises(FatalError, match="/dev/zero: larger than"):
        load_properties("/dev/zero")


def test_a_value_has_no_nul():
    """As a path it would end the start with a trace."""

    @dataclass(frozen=True)
    class Paths:
        store: str = key("storePathRootDir", "")

    properties = parse_properties_text(r"storePathRootDir=/tmp/x\u0000y", "b.conf")
    with pytest.raises(FatalError, match=r"b\.conf:1: storePathRootDir: a NUL is in no value"):
        bind(Paths, properties)


def test_the_keys_of_a_real_broker_file_are_known():
    real = """brokerClusterName brokerName brokerId deleteWhen fileReservedTime brokerRole
    flushDiskType storePathRootDir enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId
    sendMessageThreadPoolNums namesrvAddr listenPort brokerIP1 brokerIP2 autoCreateTopicEnable
    haListenPort enablePropertyFilter aclEnable traceTopicEnable kvConfigPath bindAddress
    transientStorePoolEnable mappedFileSizeCommitLog waitTimeMillsInSendQueue"""
    assert set(real.split()) <= ROCKETMQ_KEYS
