"""Who is heard by a controller: its peers, signed where there is a key."""

import pytest

from cli.certificates import Authority
from ledgermq.remoting.protocol.certificates import Identity, Role, node_identity
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.signing import (
    KeyCredentials,
    Trust,
    read_certificate_credentials,
    sign,
)
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.tasks import Supervisor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.config import ControllerConfig
from namesrv.controller.links import Links
from namesrv.controller.wire import AskVote, encode

KEY = b"a key of many characters"
CLOCK = SystemClock()


class Connection:
    def __init__(self, host):
        self.remote = (host, 4711)


class Receiver:
    def __init__(self):
        self.heard = []

    def receive(self, peer, message):
        self.heard.append((peer, message))

    def on_link(self, peer, *, is_up):
        raise AssertionError(peer, is_up)


def heard(*commands, keys=(), host="127.0.0.1", authorities=()):
    """Return what a controller hears of requests."""
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": "127.0.0.1:1", "n1": "127.0.0.1:2"},
        store_path="/nonexistent", bind_address="127.0.0.1",
    )  # fmt: skip
    store = CredentialStore(SecuritySettings(), "n0", CLOCK.wall_ms)
    store.trust = Trust(keys, authorities)
    links = Links(config, store, CLOCK, Supervisor(), 7)
    links._receiver = receiver = Receiver()
    for command in commands:
        assert links.receive(Connection(host), command) is None
    return [peer for peer, _ in receiver.heard]


def message(number=1, sender="n1"):
    body = encode(sender, 3, number, AskVote(1, 1, 1))
    return RemotingCommand(RequestCode.CONTROLLER_MESSAGE, body=body)


def signed(key=KEY, audience="controller/g/n0", nonce="1"):
    return sign(
        message(), KeyCredentials(key, "n1"), now_ms=CLOCK.wall_ms(), nonce=nonce,
        audience=audience,
    )  # fmt: skip


def test_peers_of_this_machine_are_heard_without_a_key():
    assert heard(message(1), message(2), message(2)) == ["n1", "n1"]


@pytest.mark.parametrize("host", ["10.0.0.1", "::2", "192.168.1.1"])
def test_other_machines_are_not_heard_without_a_key(host):
    assert heard(message(), host=host) == []


def test_with_a_key_what_is_signed_is_heard_from_anywhere_and_once():
    one = signed()
    assert heard(one, one, keys=(KEY,), host="10.0.0.1") == ["n1"]


@pytest.mark.parametrize(
    "command",
    [message(), signed(b"another key of characters"), signed(audience="controller/g/n2"),
     signed(audience="")],
)  # fmt: skip
def test_with_a_key_nothing_else_is_heard(command):
    assert heard(command, keys=(KEY,)) == []
    with planted(BY_TESTS["controller-hears-anybody"]):
        assert heard(command, keys=(KEY,)) == ["n1"]


@pytest.mark.parametrize("identity", [node_identity("g", "n1"), Identity(Role.ADMIN, "n1")])
def test_a_certificate_is_no_controller(tmp_path, identity):
    authority = Authority.create(tmp_path, "test CA", 10)
    certificate, key = authority.issue(identity, "one")
    credentials = read_certificate_credentials(certificate.read_bytes(), key.read_bytes())
    command = sign(
        message(), credentials, now_ms=CLOCK.wall_ms(), nonce="1", audience="controller/g/n0"
    )
    believed = {"keys": (KEY,), "authorities": (authority.certificate,)}
    assert heard(command, **believed) == []
    assert heard(signed(), **believed) == ["n1"]
    with planted(BY_TESTS["controller-hears-any-certificate"]):
        assert heard(command, **believed) == ["n1"]


def test_neither_strangers_nor_noise_are_heard():
    noise = RemotingCommand(RequestCode.CONTROLLER_MESSAGE, body=b"\x95noise")
    assert heard(message(sender="n2"), message(sender="n0"), noise) == []
