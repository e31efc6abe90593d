"""Checks at start: what is said of the directory of a Raft group that a broker alone is given."""

import asyncio
import errno
import socket

import pytest

from broker import ports
from broker.config import BrokerConfig
from broker.ports import check_no_group
from dledger.codec.properties import Identity, encode_identity
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted


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


def knocked():
    """What somebody is told who connects to a port while a start looks at it."""
    told = []

    async def look():
        loop = asyncio.get_running_loop()
        create = loop.create_server

        async def create_and_knock(*arguments, **options):
            server = await create(*arguments, **options)
            with socket.socket() as client:
                told.append(client.connect_ex(server.sockets[0].getsockname()))
            return server

        loop.create_server = create_and_knock
        await ports.check_port_free("listenPort", "127.0.0.1", 0)

    asyncio.run(look())
    return told


def test_a_port_that_is_looked_at_takes_no_connection():
    """Who connected would have a connection on which nobody answers, for as long as it likes."""
    assert knocked() == [errno.ECONNREFUSED]
    with planted(BY_TESTS["port-tried-by-listening"]):
        assert knocked() == [0]


def test_a_port_that_somebody_listens_at_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(FatalError, match=f"listenPort: 127.0.0.1:{port} is in use by another"):
            asyncio.run(ports.check_port_free("listenPort", "127.0.0.1", port))
