"""Who may change a group: 29002 to 29004 with and without keys, from here and from elsewhere."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.cluster.guard import Guard
from broker.config import BrokerConfig
from cli.certificates import Authority
from ledgermq.remoting.protocol.certificates import Identity, Role, node_identity
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.hosts import is_loopback
from ledgermq.remoting.protocol.signing import KeyCredentials, read_certificate_credentials, sign
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted

KEY = "a key of enough characters"
# Tomorrow: the tests' certificates count from when they are made, long after the files are read.
NOW = SystemClock().wall_ms() + 86_400_000


def guard_of(is_shut_out=lambda _node_id: False, **settings):
    store = CredentialStore(SecuritySettings(**settings), "g/n0", lambda: NOW)
    store.load()
    config = BrokerConfig(
        enable_dledger=True, dledger_group="g", dledger_self_id="n0", dledger_peers="n0-127.0.0.1:1"
    )
    return Guard(store, config, lambda: NOW, is_shut_out)


def ask(guard, command, host):
    """Return the code of the answer, and its remark."""

    async def handle(_connection, request):
        return make_response(request, 0)

    connection = SimpleNamespace(remote=(host, 1))
    answer = asyncio.run(guard.protect(handle)(connection, command))
    return answer.code, answer.remark


def request(credentials=None, *, nonce="1", audience="g/n0"):
    command = RemotingCommand(29002, ext_fields={"op": "remove", "node": "n1"})
    if credentials is None:
        return command
    return sign(command, credentials, now_ms=NOW, nonce=nonce, audience=audience)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.8.8"])
def test_without_settings_this_machine_may(host):
    assert ask(guard_of(), request(), host)[0] == 0


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "?", "fe80::1%eth0", "0.0.0.0"])
def test_without_settings_nobody_else_may_and_the_remark_names_them(host):
    code, remark = ask(guard_of(), request(), host)
    assert code == 16
    assert "peerSharedKeyFile" in remark
    assert "peerTlsCaPath" in remark


def stranger_is_refused():
    guard = guard_of(shared_key=KEY)
    return ask(guard, request(), "127.0.0.1")[0] == 16


def test_with_a_key_a_signature_is_asked_of_everybody():
    assert stranger_is_refused()
    guard = guard_of(shared_key=KEY)
    signed = request(KeyCredentials(KEY.encode(), "admin"))
    assert ask(guard, signed, "10.0.0.1")[0] == 0
    assert ask(guard, signed, "10.0.0.1") == (16, ask(guard, signed, "10.0.0.1")[1])
    other = request(KeyCredentials(b"another key, also long", "admin"), nonce="2")
    assert ask(guard, other, "127.0.0.1")[0] == 16
    elsewhere = request(KeyCredentials(KEY.encode(), "admin"), nonce="3", audience="g/n1")
    assert ask(guard, elsewhere, "127.0.0.1")[0] == 16


def test_a_broker_that_asks_for_no_signature_is_noticed():
    with planted(BY_TESTS["signature-not-required"]):
        assert not stranger_is_refused()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority.create(tmp_path_factory.mktemp("ca"), "CA", 10)


@pytest.mark.parametrize(
    ("identity", "code"),
    [
        (Identity(Role.ADMIN, "alice"), 0),
        (node_identity("g", "n2"), 0),
        (node_identity("other", "n2"), 16),
        (node_identity("g/other", "n2"), 16),
    ],
)
def test_administrators_and_members_of_the_group_may(authority, identity, code):
    stem = identity.name.replace("/", "-")
    paths = authority.issue(identity, stem)
    credentials = read_certificate_credentials(*(path.read_bytes() for path in paths))
    guard = guard_of(ca_path=str(authority.directory / "ca.crt"))
    assert ask(guard, request(credentials), "10.0.0.1")[0] == code


def former_member_may(authority):
    identity = node_identity("g", "n7")
    stem = "g-n7-former"
    if not (authority.directory / f"{stem}.crt").exists():
        authority.issue(identity, stem)
    paths = [authority.directory / f"{stem}.{kind}" for kind in ("crt", "key")]
    credentials = read_certificate_credentials(*(path.read_bytes() for path in paths))
    settings = {"ca_path": str(authority.directory / "ca.crt")}
    assert ask(guard_of(**settings), request(credentials), "10.0.0.1")[0] == 0
    guard = guard_of(is_shut_out=lambda node_id: node_id == "n7", **settings)
    return ask(guard, request(credentials), "10.0.0.1")[0] == 0


def test_who_was_removed_from_the_group_may_not(authority):
    assert not former_member_may(authority)
    with planted(BY_TESTS["former-member-administers"]):
        assert former_member_may(authority)


def test_loopback_is_what_no_other_machine_reaches():
    assert is_loopback("localhost")
    assert not any(map(is_loopback, ["", "example.org", "0.0.0.0", "::", "192.168.0.1"]))


def may_change_settings(guard, host="10.0.0.1", credentials=None):
    """Tell whether somebody may send what is guarded as settings are."""

    async def handle(_connection, request):
        return make_response(request, 0)

    connection = SimpleNamespace(remote=(host, 1))
    protected = guard.protect(handle, guard.refusal_of_settings)
    return asyncio.run(protected(connection, request(credentials))).code == 0


def test_settings_are_anybody_s_until_there_is_a_key():
    assert may_change_settings(guard_of())
    assert not may_change_settings(guard_of(shared_key=KEY))
    assert not may_change_settings(guard_of(shared_key=KEY), "127.0.0.1")
    assert may_change_settings(
        guard_of(shared_key=KEY), credentials=KeyCredentials(KEY.encode(), "a")
    )


def test_planted_settings_of_anybody_are_found_here():
    with planted(BY_TESTS["settings-are-anybody-s"]):
        assert may_change_settings(guard_of(shared_key=KEY))
