"""The account of a client: what is signed, and what is never shown."""

from __future__ import annotations

import pytest

from ledgermq.client import ClientConfig
from ledgermq.remoting.protocol.access import signature_of
from ledgermq.remoting.protocol.command import RemotingCommand

HERE = {"namesrv_addrs": ("127.0.0.1:9876",), "group": "g"}
KEYS = {"access_key": "publisher", "secret_key": "secret-p"}


def test_a_lent_key_comes_with_a_token_that_is_signed():
    """AclClientRPCHook adds it before it signs, so its value stands behind the name's."""
    lent = ClientConfig(**HERE, **KEYS, security_token="token-p")
    assert "-p" not in repr((lent, lent.account))
    fields = lent.account.sign(RemotingCommand(310, ext_fields={"b": "orders"})).ext_fields
    assert fields["SecurityToken"] == "token-p"
    in_order = {"1": "publisher", "2": "token-p", "3": "orders"}
    assert fields["Signature"] == signature_of(b"secret-p", in_order, b"")
    bare = ClientConfig(**HERE, **KEYS).account.sign(RemotingCommand(310)).ext_fields
    assert sorted(bare) == ["AccessKey", "Signature"]


@pytest.mark.parametrize(
    "settings", [{"access_key": "a"}, {"secret_key": "s"}, {"security_token": "t"}]
)
def test_half_an_account_is_none(settings):
    with pytest.raises(ValueError, match="needed"):
        ClientConfig(**HERE, **settings)
