"""What a broker and a name server listen on: this machine alone, unless they are told otherwise."""

import pytest

from broker.config import BrokerConfig
from namesrv.config import NamesrvConfig

LOCAL = "n0-127.0.0.1:40911;n1-127.0.0.1:40912"
REMOTE = "n0-127.0.0.1:40911;n1-10.0.0.2:40911"


def group(peers, **settings):
    return BrokerConfig(
        enable_dledger=True,
        dledger_group="g",
        dledger_self_id="n0",
        dledger_peers=peers,
        **settings,
    )


@pytest.mark.parametrize(
    ("config", "host"),
    [
        (BrokerConfig(), "127.0.0.1"),
        (BrokerConfig(broker_ip1="10.0.0.1"), "0.0.0.0"),
        (BrokerConfig(broker_ip2="10.0.0.1"), "0.0.0.0"),
        (BrokerConfig(bind_address="10.0.0.1"), "10.0.0.1"),
        (BrokerConfig(broker_ip1="10.0.0.1", bind_address="127.0.0.1"), "127.0.0.1"),
        (BrokerConfig(broker_ip1="::1"), "::1"),
        (BrokerConfig(broker_ip1="2001:db8::1"), "::"),
        (BrokerConfig(broker_ip1="2001:db8::1", bind_address="::1"), "::1"),
        (group("n0-[::1]:40911;n1-[::1]:40912", broker_ip1="::1"), "::1"),
        (group("n0-[::1]:40911;n1-[2001:db8::2]:40911", broker_ip1="::1"), "::"),
        (group(LOCAL), "127.0.0.1"),
        (group(REMOTE), "0.0.0.0"),
        (group(REMOTE, bind_address="127.0.0.1"), "127.0.0.1"),
    ],
)
def test_a_broker_listens_beyond_this_machine_only_when_told(config, host):
    assert config.listen_host == host


def test_a_name_server_listens_on_this_machine():
    assert NamesrvConfig().bind_address == "127.0.0.1"
