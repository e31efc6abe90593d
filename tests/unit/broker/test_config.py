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
