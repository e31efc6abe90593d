"""Checks at start: what is said of the directory of a Raft group that a broker alone is given."""

import pytest

from broker.config import BrokerConfig
from broker.ports import check_no_group
from dledger.codec.properties import Identity, encode_identity
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError


def complaint(store):
    with pytest.raises(FatalError) as error:
        check_no_group(RealDisk(), BrokerConfig(broker_name="a", store_path=str(store)))
    return error.value.message


def test_a_member_is_told_its_own_group_and_never_to_lead_alone(tmp_path):
    (tmp_path / "dledger-n2").mkdir()
    identity = encode_identity(Identity("RaftGroup0", "n2", "0" * 16))
    (tmp_path / "dledger-n2/identity").write_bytes(identity)
    said = complaint(tmp_path)
    assert "holds the log of a Raft group (dledger-n2)" in said
    assert "enableDLegerCommitLog=true, dLegerGroup=RaftGroup0, dLegerSelfId=n2 and" in said
    assert "the dLegerPeers that it had: never fewer" in said
    assert "dLegerPeers=" not in said


@pytest.mark.parametrize("identity", [None, b"nonsense"])
def test_a_directory_that_does_not_say_its_group_gets_no_name_for_it(tmp_path, identity):
    (tmp_path / "dledger-n0").mkdir()
    if identity is not None:
        (tmp_path / "dledger-n0/identity").write_bytes(identity)
    said = complaint(tmp_path)
    assert "the dLegerGroup it had, dLegerSelfId=n0" in said
    assert "dLegerGroup=" not in said


def test_a_directory_without_such_a_log_is_taken(tmp_path):
    check_no_group(RealDisk(), BrokerConfig(store_path=str(tmp_path)))
