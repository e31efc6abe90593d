"""Members know each other: with a key or certificates a group works, and nobody else is heard."""

import asyncio
import contextlib
import gc
import struct
from pathlib import Path

import pytest
import uvloop

from cli.certificates import Authority
from dledger.codec.handshake import Acceptor, Dialler
from dledger.codec.peer import PeerCodec
from dledger.config import DLedgerConfig
from dledger.core.configuration import Change, ChangeKind
from dledger.core.messages import AppendReply, VoteRequest
from dledger.errors import NotLeader
from dledger.limits import PEER_PENDING_PER_ADDRESS_MAX
from dledger.peers.inbound import Inbound
from dledger.peers.rpc import TcpTransport
from dledger.peers.trust import MemberCredentials
from ledgermq.remoting.protocol.certificates import Identity, Role, node_identity
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.dledger_group import Group, run

KEY = "a key that the members share"


class Trusting(Group):
    """A group with keys or certificates, one set for each node."""

    def __init__(self, path, securities, **settings):
        super().__init__(path, len(securities), **settings)
        self.securities = dict(zip(self.ids, securities, strict=True))

    def config(self, node_id, **other):
        return super().config(node_id, security=self.securities[node_id], **other)


def keyed(count=3, key=KEY):
    return [SecuritySettings(shared_key=key)] * count


def certified(authority, ids=("n0", "n1", "n2"), group="group"):
    found = []
    for node_id in ids:
        stem = f"{group}-{node_id}"
        if not (authority.directory / f"{stem}.crt").exists():
            authority.issue(node_identity(group, node_id), stem)
        found.append(of_stem(authority, stem))
    return found


def of_stem(authority, stem):
    directory = authority.directory
    return SecuritySettings(
        cert_path=f"{directory}/{stem}.crt",
        key_path=f"{directory}/{stem}.key",
        ca_path=f"{directory}/ca.crt",
    )


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "CA", 10)


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def outcome(work):
    """Run a coroutine and return what it does."""
    found = []

    async def main():
        found.append(await work)

    run(main())
    return found[0]


async def works(group, count=20):
    """Append and wait until all have it; a leader that loses its place meanwhile may do so once."""
    try:
        await group.append(count)
    except (NotLeader, TimeoutError):
        await group.append(count)
    await group.settle()


def test_a_group_with_a_key_replicates_fails_over_and_recovers(tmp_path):
    async def main():
        group = Trusting(tmp_path, keyed())
        await group.start()
        leader = await group.append(20)
        await group.stop(leader.self_id)
        await group.append(20)
        await group.start(leader.self_id)
        await works(group)
        await group.stop()
        assert not group.fatal

    run(main())


def test_a_group_with_certificates_replicates_fails_over_and_recovers(tmp_path, authority):
    async def main():
        group = Trusting(tmp_path, certified(authority))
        await group.start()
        leader = await group.append(20)
        await group.stop(leader.self_id)
        await group.append(20)
        await group.start(leader.self_id)
        await works(group)
        await group.stop()
        assert not group.fatal

    run(main())


# Strangers


async def connect(node, ssl=None):
    host, port = node.config.listen_address.split(":")
    names = {"server_hostname": host} if ssl else {}
    return await asyncio.open_connection(host, int(port), ssl=ssl, **names)


async def is_closed(reader):
    """Tell whether the other side hangs up soon."""
    try:
        async with asyncio.timeout(5):
            while await reader.read(1 << 16):
                pass
    except TimeoutError:
        return False
    except OSError:
        pass  # It is closed by a reset, too.
    return True


def deposing(node, sender, term=None):
    """Return the frames by which a leader was deposed at will."""
    codec = PeerCodec("group", sender, (node.self_id,))
    term = node.term + 1 if term is None else term
    vote = VoteRequest(sender, node.self_id, term, 1 << 40, term - 1, True)
    reply = AppendReply(sender, node.self_id, term, 0)
    return b"".join(b"".join(codec.encode(message)) for message in (vote, reply))


@pytest.mark.parametrize("how", ["key", "tls"])
def test_whoever_has_neither_key_nor_certificate_is_not_heard(tmp_path, authority, how, caplog):
    async def main():
        securities = keyed() if how == "key" else certified(authority)
        group = Trusting(tmp_path, securities)
        await group.start()
        leader = await group.append(10)
        term = leader.term
        for sender in ("n0", "n1", "n2", "n9"):
            if sender == leader.self_id:
                continue
            reader, writer = await connect(leader)
            with contextlib.suppress(OSError):
                writer.write(deposing(leader, sender))
                await writer.drain()
            assert await is_closed(reader)
            writer.close()
        await group.append(10)
        assert (leader.is_leader, leader.term) == (True, term)
        await group.stop()

    run(main())
    assert any("event=peer_refused remote=127.0.0.1" in line for line in lines(caplog))


async def speak_as(leader, proven, claimed):
    """Prove to be one member, by the key, and speak as another."""
    reader, writer = await connect(leader)
    dialler = Dialler(KEY.encode(), ("group", proven, leader.self_id), bytes(32))
    writer.write(dialler.greeting)
    (challenge,) = FrameDecoder().feed(await reader.read(4096))
    proof, sealer = dialler.answer(challenge)
    codec = PeerCodec("group", claimed, (leader.self_id,))
    term = leader.term + 1
    vote = VoteRequest(claimed, leader.self_id, term, 1 << 40, term - 1, True)
    writer.write(proof + b"".join(sealer.seal(codec.encode(vote))))
    await writer.drain()
    closed = asyncio.ensure_future(is_closed(reader))
    await asyncio.wait([closed], timeout=0.3)
    closed.cancel()
    writer.close()


async def deposed_by_another_member(tmp_path):
    """Tell whether a member can depose the leader in the name of another."""
    group = Trusting(tmp_path, keyed())
    await group.start()
    leader = await group.append(10)
    term = leader.term
    proven, claimed = (one for one in group.ids if one != leader.self_id)
    await speak_as(leader, proven, claimed)
    deposed = leader.term != term
    await group.append(10)
    await group.stop()
    return deposed


def test_a_member_speaks_for_itself_alone(tmp_path, caplog):
    assert outcome(deposed_by_another_member(tmp_path / "a")) is False
    assert any("a message of" in line for line in lines(caplog))
    with planted(BY_TESTS["sender-not-compared"]):
        assert outcome(deposed_by_another_member(tmp_path / "b")) is True


def test_wrong_key_is_told_on_both_sides_and_the_others_go_on(tmp_path, caplog):
    async def main():
        securities = [*keyed(2), *keyed(1, "quite another key, also long")]
        group = Trusting(tmp_path, securities)
        await group.start()
        leader = await group.append(10)
        assert leader.self_id != "n2"
        await asyncio.sleep(0.3)
        assert group.nodes["n2"].commit_index == -1
        await group.stop()

    run(main())
    found = lines(caplog)
    assert any("peer_refused" in line and "n2 has a shared key" in line for line in found)
    assert any("peer_not_proven peer=n" in line for line in found)
    assert sum("peer_refused" in line for line in found) <= 2 * 3 * 5


def test_certificates_that_do_not_count_are_told_on_both_sides(tmp_path, authority, caplog):
    # n2 has a certificate of another CA; it trusts the right one, too.
    other = Authority.create(tmp_path / "other", "CA", 10)
    paths = other.issue(node_identity("group", "n2"), "group-n2")
    both = tmp_path / "both.crt"
    both.write_bytes(
        (authority.directory / "ca.crt").read_bytes() + (other.directory / "ca.crt").read_bytes()
    )

    async def main():
        foreign = SecuritySettings(
            cert_path=str(paths[0]), key_path=str(paths[1]), ca_path=str(both)
        )
        group = Trusting(tmp_path, [*certified(authority, ("n0", "n1")), foreign])
        await group.start()
        await group.append(10)
        await asyncio.sleep(0.5)
        assert group.nodes["n2"].commit_index == -1
        await group.stop()

    run(main())
    found = lines(caplog)
    assert any("peer_refused remote=127.0.0.1" in x and "ertificate" in x for x in found)
    assert any("peer_not_proven peer=n2" in x and "certificate verify failed" in x for x in found)
    assert any("peer_not_proven peer=n0" in x for x in found), found
    assert all(f"{authority.directory}/ca.crt" in x or "both.crt" in x
               for x in found if "peer_refused" in x)  # fmt: skip


async def heard_with(tmp_path, authority, stem, sender):
    """Tell whether who dials with a certificate can depose the leader as ``sender``."""
    store = CredentialStore(of_stem(authority, stem), "x", SystemClock().wall_ms)
    store.load()
    group = Trusting(tmp_path, certified(authority))
    await group.start()
    leader = await group.append(10)
    term = leader.term
    reader, writer = await connect(leader, store.tls_context(is_server=False))
    with contextlib.suppress(OSError):
        writer.write(deposing(leader, sender))
        await writer.drain()
    closed = asyncio.ensure_future(is_closed(reader))
    await asyncio.wait([closed], timeout=0.3)
    closed.cancel()
    writer.close()
    heard = leader.term != term
    await group.stop()
    return heard


@pytest.mark.parametrize(
    ("identity", "sender"),
    [
        (node_identity("other", "n7"), "n7"),
        (node_identity("group", "n7"), "n1"),
        (node_identity("group", "n7"), "n2"),
        (Identity(Role.ADMIN, "n1"), "n1"),
        (Identity(Role.ADMIN, "group/n1"), "n1"),
    ],
)
def test_a_certificate_speaks_for_its_owner_in_its_group(tmp_path, authority, identity, sender):
    authority.issue(identity, "stranger")
    assert outcome(heard_with(tmp_path, authority, "stranger", sender)) is False


async def speak(node, authority, stem, frames):
    """Dial with a certificate and say something; tell whether the other side hangs up soon."""
    store = CredentialStore(of_stem(authority, stem), "x", SystemClock().wall_ms)
    store.load()
    reader, writer = await connect(node, store.tls_context(is_server=False))
    with contextlib.suppress(OSError):
        writer.write(frames)
        await writer.drain()
    closed = asyncio.ensure_future(is_closed(reader))
    await asyncio.wait([closed], timeout=0.5)
    is_done = closed.done()
    closed.cancel()
    writer.close()
    return is_done


async def deposed_by_a_former_member(tmp_path, authority):
    """Tell whether the leader is deposed, and whether it hangs up; before and after a restart."""
    group = Trusting(tmp_path, certified(authority, ("n0", "n1", "n2", "n3")))
    await group.start()
    await group.append(10)
    leader = await group.leader()
    gone = next(one for one in group.ids if one != leader.self_id)
    await leader.operations.change_membership(Change(ChangeKind.REMOVE, gone))
    await group.stop(gone)
    await group.settle()
    found = []
    for restart in (False, True):
        if restart:
            await group.stop()
            await group.start(*(one for one in group.ids if one != gone))
        leader = await group.append(10)
        term = leader.term
        is_shut = await speak(leader, authority, f"group-{gone}", deposing(leader, gone))
        found.append((leader.term != term, is_shut))
        await group.append(10)
    await group.stop()
    assert not group.fatal
    return found


def test_the_certificate_of_who_was_removed_does_not_count(tmp_path, authority, caplog):
    assert outcome(deposed_by_a_former_member(tmp_path / "a", authority)) == [(False, True)] * 2
    assert sum("event=peer_removed peer=n" in line for line in lines(caplog)) == 2
    with planted(BY_TESTS["former-member-heard"]):
        found = outcome(deposed_by_a_former_member(tmp_path / "b", authority))
    assert [deposed for deposed, _ in found] == [True, True]


def test_a_certificate_is_exchanged_while_the_group_runs(tmp_path, authority, monkeypatch, caplog):
    monkeypatch.setattr("dledger.peers.rpc.SWEEP_S", 0.1)
    caplog.set_level("INFO")

    async def main():
        group = Trusting(tmp_path, certified(authority))
        await group.start()
        await works(group)
        for node_id in group.ids:
            authority.issue(node_identity("group", node_id), f"group-{node_id}", renew=True)
        await group.until(
            lambda: all(node.credentials.version > 1 for node in group.nodes.values())
        )
        await group.stop("n1")
        await group.start("n1")
        await works(group)
        await group.stop()

    run(main())
    assert sum("event=credentials_read" in line for line in lines(caplog)) >= 3


def after_a_mix_up(authority, tmp_path):
    """Return whom a member's certificate names, and what is used, once another's took its place."""
    own, other, _ = certified(authority)
    peers = {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2"}
    config = DLedgerConfig(
        group="group", self_id="n0", peers=peers, directory=str(tmp_path), security=own
    )
    credentials = MemberCredentials(config, SystemClock())
    credentials.load()
    for path, wrong in ((own.cert_path, other.cert_path), (own.key_path, other.key_path)):
        Path(path).write_bytes(Path(wrong).read_bytes())
    assert not credentials.refresh()
    return credentials.identity, credentials.credentials.identity, credentials.version


def test_the_certificate_of_another_member_put_in_the_place_of_the_own_is_not_used(
    tmp_path, authority, caplog
):
    own = node_identity("group", "n0")
    assert after_a_mix_up(authority, tmp_path) == (own, own, 1)
    assert "event=credentials_not_read" in caplog.text


async def heard_within(seconds, node, commit_index):
    """Tell whether a node learns so far within this time."""
    try:
        async with asyncio.timeout(seconds):
            while node.commit_index < commit_index:
                await asyncio.sleep(0.005)
    except TimeoutError:
        return False
    return True


SHORT_S = 5
"""So long the certificate of n2 counts: enough for a group to begin with it."""


def sweeps(monkeypatch):
    """Have nodes look after their links often; return who has done so, each time."""
    found, sweep = [], TcpTransport._sweep_requests
    monkeypatch.setattr("dledger.peers.rpc.SWEEP_S", 0.1)
    monkeypatch.setattr(
        TcpTransport, "_sweep_requests", lambda self: (found.append(self), sweep(self))
    )
    return found


async def works_with_expired(tmp_path, authority, looks, wait_s):
    """Tell whether a member with a certificate that has expired is heard; then renew it.

    ``looks``: what `sweeps` has returned; ``wait_s``: within how long it is heard.
    """
    identity = node_identity("group", "n2")
    authority.issue(identity, "group-n2", days=SHORT_S / 86_400, renew=False)
    ends = asyncio.get_running_loop().time() + SHORT_S + 1.2
    group = Trusting(tmp_path, certified(authority))
    await group.start()
    await works(group)
    leader = await group.leader()
    if leader.self_id == "n2":
        await leader.operations.transfer_leadership("n0")
    await asyncio.sleep(max(0, ends - asyncio.get_running_loop().time()))
    looks.clear()
    await group.until(
        lambda: all(looks.count(node._transport) > 3 for node in group.nodes.values())
    )
    await group.append(10)
    leader = await group.leader()
    is_heard = await heard_within(wait_s, group.nodes["n2"], leader.commit_index)
    if not is_heard:  # nor when it dials anew, and nor does a start help
        await group.stop("n2")
        with pytest.raises(FatalError, match="expired"):
            await group.start("n2")
        authority.issue(identity, "group-n2", renew=True)
        await group.start("n2")
        await works(group)
    await group.stop()
    return is_heard


def test_an_expired_certificate_ends_links_and_a_new_one_makes_them(
    tmp_path, authority, monkeypatch, caplog
):
    looks = sweeps(monkeypatch)
    assert outcome(works_with_expired(tmp_path / "a", authority, looks, 0.3)) is False
    found = lines(caplog)
    assert any("event=peer_lapsed peer=n2" in x and "expired at" in x for x in found)
    assert any("event=peer_refused" in x and "certificate has expired" in x for x in found)


def test_the_planted_bug_keeps_who_has_expired(tmp_path, authority, monkeypatch):
    looks = sweeps(monkeypatch)
    with planted(BY_TESTS["lapsed-proof-kept"]):
        assert outcome(works_with_expired(tmp_path / "b", authority, looks, 20)) is True


async def key_is_exchanged(tmp_path):
    """Exchange a key as the manual says; tell whether a link made with the old one ends."""
    tmp_path.mkdir()
    file, other = tmp_path / "cluster.key", "the key that takes its place"
    file.write_text(f"{KEY}\n")
    group = Trusting(tmp_path, [SecuritySettings(shared_key_file=str(file))] * 3)
    await group.start()
    await works(group)
    leader = await group.leader()
    reader, writer = await connect(leader)
    dialler = Dialler(KEY.encode(), ("group", "n7", leader.self_id), bytes(32))
    writer.write(dialler.greeting)
    (challenge,) = FrameDecoder().feed(await reader.read(4096))
    writer.write(dialler.answer(challenge)[0])
    for text in (f"{KEY}\n{other}\n", f"{other}\n{KEY}\n", f"{other}\n"):
        version = {i: node.credentials.version for i, node in group.nodes.items()}
        file.write_text(text)
        await group.until(
            lambda known=version: all(
                node.credentials.version > known[i] for i, node in group.nodes.items()
            )
        )
        await works(group)
    closed = asyncio.ensure_future(is_closed(reader))
    await asyncio.wait([closed], timeout=1)
    ended = closed.done()
    closed.cancel()
    writer.close()
    assert not group.fatal
    await group.stop()
    return ended


def test_a_key_that_was_exchanged_ends_the_links_made_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("dledger.peers.rpc.SWEEP_S", 0.1)
    assert outcome(key_is_exchanged(tmp_path / "a")) is True
    with planted(BY_TESTS["lapsed-proof-kept"]):
        assert outcome(key_is_exchanged(tmp_path / "b")) is False


def test_strangers_do_not_keep_members_out(tmp_path):
    async def main():
        group = Trusting(tmp_path, keyed())
        await group.start()
        await group.append(10)
        await group.stop("n1", "n2")
        held = [await connect(group.nodes["n0"]) for _ in range(200)]
        await group.start("n1", "n2")
        await works(group)
        for _, writer in held:
            writer.close()
        await group.stop()

    run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        struct.pack(">iI", 1 << 20, 1 << 24 | 21) + bytes(20_000),
        b"".join(PeerCodec("group", "n1", ("n0",)).encode(AppendReply("n1", "n0", 1, 0))) * 3,
        Dialler(KEY.encode(), ("group", "n1", "n0"), bytes(32)).greeting,
    ],
    ids=["nothing", "a byte", "much", "messages", "a greeting"],
)
def test_who_proves_nothing_is_gone_soon(tmp_path, monkeypatch, data):
    monkeypatch.setattr("dledger.peers.inbound.HANDSHAKE_S", 0.3)

    async def main():
        group = Trusting(tmp_path, keyed(1))
        await group.start()
        await group.append(1)
        reader, writer = await connect(group.nodes["n0"])
        writer.write(data)
        async with asyncio.timeout(3):
            assert await is_closed(reader)
        writer.close()
        await group.append(1)
        assert not group.nodes["n0"]._transport._inbound
        await group.stop()

    run(main())


def left_in_cycles(kind, before=()):
    """What of a kind is there without a collection: those of old objects are hours apart.

    Others than ``before``: what somebody else holds says nothing.
    """
    known = {id(one) for one in before}
    return [one for one in gc.get_objects() if isinstance(one, kind) and id(one) not in known]


def test_connections_that_are_gone_leave_nothing_behind(tmp_path, authority):
    async def main():
        (own,) = certified(authority, ids=("n0",))
        (other,) = certified(authority, ids=("n9",))
        group = Trusting(tmp_path, [own])
        await group.start()
        node = group.nodes["n0"]
        silent = [await connect(node) for _ in range(PEER_PENDING_PER_ADDRESS_MAX + 2)]
        assert await is_closed(silent[0][0])
        context = CredentialStore(other, "n9", SystemClock().wall_ms)
        context.load()
        _, writer = await connect(node, context.tls_context(is_server=False))
        for one in (writer, *(writer for _, writer in silent)):
            one.transport.abort()
        async with asyncio.timeout(10):
            while left_in_cycles(Inbound, before):
                await asyncio.sleep(0.05)
        await group.stop()

    gc.collect()
    before = left_in_cycles(Inbound)
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    finally:
        gc.enable()


def test_a_stranger_with_an_odd_name_ends_nobody(tmp_path):
    """Its name was longer as text than as bytes, and had no place in the record of what happens."""

    async def main():
        group = Group(tmp_path, 3)
        await group.start()
        leader = await group.append(5)
        vote = VoteRequest("n9", leader.self_id, leader.term, 1 << 40, leader.term)
        for name in (b"\xff" * 200, b"n0\nfresh=true"):
            codec = PeerCodec("group", "n9")
            names = (b"group", name, leader.self_id.encode())
            codec._names_out[leader.self_id] = b"".join(bytes((len(n),)) + n for n in names)
            reader, writer = await connect(leader)
            writer.write(b"".join(codec.encode(vote)))
            assert await is_closed(reader)
            writer.close()
        await works(group)
        await group.stop()
        assert not group.fatal

    run(main())


def test_an_impostor_learns_only_a_name(tmp_path):
    # Somebody listens where a member should be, and has no key.
    async def main():
        group = Trusting(tmp_path, keyed(2), tick_ms=10)
        host, port = group.peers["n1"].split(":")
        heard = bytearray()

        async def serve(reader, writer):
            (greeting,) = FrameDecoder().feed(await reader.read(4096))
            impostor = Acceptor((KEY.encode(),), ("group", "n1"), bytes)
            challenge = bytearray(impostor.challenge(greeting))
            challenge[-1] ^= 1  # it cannot know it
            writer.write(bytes(challenge))
            heard.extend(await reader.read(4096))
            writer.close()

        server = await asyncio.start_server(serve, host, int(port))
        await group.start("n0")
        await asyncio.sleep(0.5)
        server.close()
        await group.stop()
        assert not heard

    run(main())


def test_a_listener_beyond_this_machine_says_that_it_believes_anybody(tmp_path, caplog):
    async def main(securities, host):
        group = Trusting(tmp_path / securities[0].shared_key, securities)
        group.peers = {i: a.replace("127.0.0.1", host) for i, a in group.peers.items()}
        await group.start("n0")
        await group.stop()

    def warned():
        return any("event=peers_not_authenticated" in line and "peerTlsCertPath" in line
                   and "peerSharedKeyFile" in line for line in lines(caplog))  # fmt: skip

    run(main([SecuritySettings()], "127.0.0.1"))
    run(main(keyed(1), "0.0.0.0"))
    assert not warned()
    run(main([SecuritySettings()], "0.0.0.0"))
    assert warned()
