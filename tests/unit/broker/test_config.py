"""Settings of a broker that concern its group."""

import pytest

from broker.config import BrokerConfig
from runtime.errors import FatalError

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


def test_preferred_leader_of_a_broker_on_its_own_is_ignored():
    assert BrokerConfig(preferred_leader_id="n1").dledger_config().preferred_leader is None


def test_preferred_leader_is_an_id():
    with pytest.raises(FatalError, match="preferredLeaderId=leader"):
        BrokerConfig(**GROUP, preferred_leader_id="leader")


def test_recording_of_events_has_a_size_that_is_checked():
    config = BrokerConfig(**GROUP, event_file_bytes=0)
    assert config.dledger_config().event_file_bytes == 0
    with pytest.raises(FatalError, match="event_file_bytes must be 0 or at least"):
        BrokerConfig(**GROUP, event_file_bytes=100)
