"""Signed requests: whoever changes, repeats, redirects or invents one is refused."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.certificates import Authority
from ledgermq.remoting.protocol.certificates import Identity, Role, node_identity
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.limits import SIGN_WINDOW_MS
from ledgermq.remoting.protocol.signing import (
    FORGOTTEN_PER_USE,
    BadSignature,
    KeyCredentials,
    Nonces,
    Trust,
    canonical_text,
    read_certificate_credentials,
    sign,
    verify,
)
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted

KEY = b"0123456789abcdef-0123456789abcdef"
# Tomorrow: the tests' certificates count from when they are made, long after the files are read.
NOW = SystemClock().wall_ms() + 86_400_000
ADMIN = Identity(Role.ADMIN, "alice")


def request(**fields):
    return RemotingCommand(29002, ext_fields=fields or {"op": "remove", "node": "n1"}, body=b"body")


def signed(command=None, *, key=KEY, nonce="1", now_ms=NOW, audience=""):
    credentials = KeyCredentials(key, "alice")
    given_ = request() if command is None else command
    return sign(given_, credentials, now_ms=now_ms, nonce=nonce, audience=audience)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority.create(tmp_path_factory.mktemp("ca"), "test CA", 10)


def certified(authority, identity=ADMIN, stem="admin", days=10):
    if (authority.directory / f"{stem}.crt").exists():
        paths = authority.directory / f"{stem}.crt", authority.directory / f"{stem}.key"
    else:
        paths = authority.issue(identity, stem, days=days)
    return read_certificate_credentials(*(path.read_bytes() for path in paths))


def test_the_key_signs_and_the_signer_is_known():
    assert verify(signed(), Trust((KEY,)), now_ms=NOW) == Identity(Role.KEY, "alice")


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_signature_survives_both_header_codecs(serialize_type):
    command = signed(
        RemotingCommand(29003, ext_fields={"target": "n1"}, serialize_type=serialize_type)
    )
    (frame,) = FrameDecoder().feed(b"".join(encode_command(command)))
    assert verify(decode_command(frame), Trust((KEY,)), now_ms=NOW).role is Role.KEY


def test_an_unsigned_request_is_refused():
    with pytest.raises(BadSignature, match="not signed"):
        verify(request(), Trust((KEY,)), now_ms=NOW)


def test_another_key_is_refused_and_an_older_one_counts_beside_the_new():
    other = b"another key of many characters"
    with pytest.raises(BadSignature, match="shared key"):
        verify(signed(key=other), Trust((KEY,)), now_ms=NOW)
    assert verify(signed(key=other), Trust((KEY, other)), now_ms=NOW)


@settings(deadline=None)
@given(
    st.sampled_from(["code", "field", "name", "new", "missing", "body", "time", "nonce", "signer"])
)
def test_whatever_is_changed_is_noticed(what):
    command = signed()
    fields = command.ext_fields
    match what:
        case "code":
            command.code += 1
        case "field":
            fields["op"] = "promote"
        case "name":
            fields["opx"] = fields.pop("op")
        case "new":
            fields["x"] = "y"
        case "missing":
            del fields["node"]
        case "body":
            command.body += b"."
        case "time":
            fields["signTime"] = str(NOW + 1)
        case "nonce":
            fields["signNonce"] = "2"
        case "signer":
            fields["signer"] = "bob"
    with pytest.raises(BadSignature):
        verify(command, Trust((KEY,)), now_ms=NOW)


_texts = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3)


@settings(max_examples=200, deadline=None)
@given(_texts, st.binary(max_size=3), _texts, st.binary(max_size=3))
def test_two_requests_have_one_text_only_if_they_say_the_same(fields, body, others, other_body):
    def said(found):
        return {name: value for name, value in found.items() if value and name != "signature"}

    same = canonical_text(1, fields, body) == canonical_text(1, others, other_body)
    assert same == (said(fields) == said(others) and body == other_body)


@given(
    st.dictionaries(
        st.sampled_from(["signTime", "signNonce", "signer", "signCert", "signature"]),
        st.text(max_size=20),
    )
)
def test_any_garbage_is_a_bad_signature(garbage):
    with pytest.raises(BadSignature):
        verify(request(op="x", **garbage), Trust((KEY,)), now_ms=NOW)


def replay_is_refused():
    trust = Trust((KEY,))
    command = signed()
    verify(command, trust, now_ms=NOW)
    try:
        verify(command, trust, now_ms=NOW + SIGN_WINDOW_MS)
    except BadSignature:
        return True
    return False


def test_a_request_counts_once_as_long_as_it_would_count():
    assert replay_is_refused()
    with planted(BY_TESTS["nonce-not-checked"]):
        assert not replay_is_refused()


@pytest.mark.parametrize("late", [SIGN_WINDOW_MS + 1, -SIGN_WINDOW_MS - 1])
def test_an_old_request_and_one_of_the_future_are_refused(late):
    with pytest.raises(BadSignature, match="clock"):
        verify(signed(), Trust((KEY,)), now_ms=NOW + late)


def test_it_counts_only_with_whom_it_names():
    trust = Trust((KEY,))
    assert verify(signed(audience="g/n0"), trust, now_ms=NOW, audience="g/n0")
    for audience in ("g/n1", ""):
        with pytest.raises(BadSignature, match="not for g/n0"):
            verify(signed(audience=audience, nonce="x"), trust, now_ms=NOW, audience="g/n0")


DAY_MS = 24 * 3_600_000


def test_nonces_are_bounded_and_forgotten_in_time():
    nonces = Nonces(2)
    nonces.use("a", 0)
    nonces.use("b", 1)
    with pytest.raises(BadSignature, match="too many"):
        nonces.use("c", 2 * SIGN_WINDOW_MS - 1)
    nonces.use("c", 2 * SIGN_WINDOW_MS)
    assert len(nonces) == 2


def used_again_behind_a_clock_that_was_put_back() -> bool:
    """Return whether one is used twice; the clock is a day ahead, and put right in between."""
    nonces = Nonces(10)
    for number in range(3):
        nonces.use(f"ahead {number}", DAY_MS + number)
    for number in range(100):
        nonces.use(str(number), number * SIGN_WINDOW_MS)
    try:
        nonces.use("ahead 1", DAY_MS)
    except BadSignature:
        return False
    return True


def test_a_clock_that_was_put_back_keeps_no_nonce_for_long():
    """Nothing was forgotten before the wrong time had come, and signed requests were refused."""
    assert not used_again_behind_a_clock_that_was_put_back()
    with planted(BY_TESTS["nonce-forgotten-as-the-clock-falls"]):
        assert used_again_behind_a_clock_that_was_put_back()


def left_after_a_pause() -> int:
    nonces = Nonces(5_000)
    for number in range(3_000):
        nonces.use(str(number), 0)
    nonces.use("later", 2 * SIGN_WINDOW_MS)
    return len(nonces)


def test_one_request_forgets_a_part_of_what_counts_no_more():
    """All of a full table at once held up the loop; what stays goes with the next requests."""
    assert left_after_a_pause() == 3_001 - FORGOTTEN_PER_USE
    with planted(BY_TESTS["all-nonces-forgotten-at-once"]):
        assert left_after_a_pause() == 1


def test_a_bad_signature_uses_up_nothing():
    trust = Trust((KEY,))
    forged = signed(key=b"some other key of no worth")
    with pytest.raises(BadSignature):
        verify(forged, trust, now_ms=NOW)
    assert len(trust.nonces) == 0


def test_a_certificate_of_the_ca_signs(authority):
    trust = Trust(authorities=(authority.certificate,))
    for number, (identity, stem) in enumerate(
        [(ADMIN, "admin"), (node_identity("g", "n0"), "node-n0")]
    ):
        credentials = certified(authority, identity, stem)
        command = sign(request(), credentials, now_ms=NOW, nonce=str(number))
        assert verify(command, trust, now_ms=NOW) == identity


def test_a_certificate_of_another_ca_does_not_count(authority, tmp_path):
    other = Authority.create(tmp_path, "test CA", 10)  # of the same name, too
    command = sign(request(), certified(other), now_ms=NOW, nonce="1")
    with pytest.raises(BadSignature, match="not issued by the CA"):
        verify(command, Trust(authorities=(authority.certificate,)), now_ms=NOW)


def test_the_ca_itself_and_an_expired_certificate_do_not_count(authority):
    trust = Trust(authorities=(authority.certificate,))
    command = sign(request(), certified(authority), now_ms=NOW, nonce="1")
    later = NOW + 11 * 24 * 3_600_000
    with pytest.raises(BadSignature, match="expired"):
        verify(command, trust, now_ms=later)


def test_the_certificate_of_one_with_the_signature_of_another_does_not_count(authority):
    trust = Trust(authorities=(authority.certificate,))
    alice = sign(request(), certified(authority), now_ms=NOW, nonce="1")
    bob = certified(authority, Identity(Role.ADMIN, "bob"), "admin-bob")
    alice.ext_fields["signCert"] = bob.fields()["signCert"]
    with pytest.raises(BadSignature, match="not that of the certificate"):
        verify(alice, trust, now_ms=NOW)


def test_a_key_does_not_count_where_only_certificates_do_nor_the_other_way(authority):
    with pytest.raises(BadSignature, match="none is set"):
        verify(signed(), Trust(authorities=(authority.certificate,)), now_ms=NOW)
    command = sign(request(), certified(authority), now_ms=NOW, nonce="1")
    with pytest.raises(BadSignature, match="no CA is set"):
        verify(command, Trust((KEY,)), now_ms=NOW)


def test_a_certificate_that_is_none_is_a_bad_signature(authority):
    command = sign(request(), certified(authority), now_ms=NOW, nonce="1")
    for text in ("AAAA", "?", base64.b64encode(bytes(9000)).decode()):
        command.ext_fields["signCert"] = text
        with pytest.raises(BadSignature):
            verify(command, Trust(authorities=(authority.certificate,)), now_ms=NOW)


# The store of what is on disk


def store(settings_):
    found = CredentialStore(settings_, "me", SystemClock().wall_ms)
    found.load()
    return found


def settings_of(authority, stem, **other):
    directory = authority.directory
    return SecuritySettings(
        cert_path=str(directory / f"{stem}.crt"),
        key_path=str(directory / f"{stem}.key"),
        ca_path=str(directory / "ca.crt"),
        **other,
    )


def test_files_are_read_again_when_they_change_and_bad_ones_change_nothing(tmp_path):
    path = tmp_path / "key"
    path.write_text("first key, long enough\n")
    found = store(SecuritySettings(shared_key_file=str(path)))
    assert not found.refresh()
    path.write_text("short\n")
    assert not found.refresh()
    assert found.keys == (b"first key, long enough",)
    path.write_text("second key, long enough\nfirst key, long enough\n")
    assert found.refresh()
    assert found.keys == (b"second key, long enough", b"first key, long enough")
    assert found.trust.keys == found.keys


def test_an_editor_s_mark_and_line_ends_are_no_part_of_a_key(tmp_path):
    """A member whose file has them was told that its key is not that of the others."""
    path = tmp_path / "key"
    path.write_bytes(b"\xef\xbb\xbffirst key, long enough\r\n\r\n")
    assert store(SecuritySettings(shared_key_file=str(path))).keys == (b"first key, long enough",)


def test_a_renewal_that_is_half_done_takes_nothing_away(authority, caplog):
    authority.issue(node_identity("g", "n6"), "node-n6", days=400)
    found = CredentialStore(settings_of(authority, "node-n6"), "me", SystemClock().wall_ms)
    found.begin()
    authority.issue(node_identity("g", "n7"), "node-n7", days=400)
    directory = authority.directory
    (directory / "node-n6.crt").write_bytes((directory / "node-n7.crt").read_bytes())
    found.begin()
    assert "event=credentials_not_read" in caplog.text
    assert found.identity == node_identity("g", "n6")
    for is_server in (True, False):
        assert found.tls_context(is_server=is_server)


def test_a_certificate_that_is_not_valid_yet_is_used_once_it_is(authority, caplog):
    """The clock of who made it was ahead of this one: it was not looked at again until it ended."""
    authority.issue(node_identity("g", "n8"), "node-n8", days=5)
    wall_ms = [SystemClock().wall_ms()]
    found = CredentialStore(settings_of(authority, "node-n8"), "me", lambda: wall_ms[0])
    found.load()
    before = found.expires_ms
    authority.issue(node_identity("g", "n8"), "node-n8", days=400, renew=True)
    wall_ms[0] -= 86_400_000
    assert not found.refresh()
    assert not found.refresh()
    assert caplog.text.count("event=credentials_not_read") == 1
    wall_ms[0] += 86_400_000
    assert found.refresh()
    assert found.expires_ms > before
    assert not found.refresh(), "nothing has changed"


def test_a_renewed_certificate_is_read(authority, caplog):
    authority.issue(node_identity("g", "n5"), "node-n5", days=5)
    found = store(settings_of(authority, "node-n5"))
    before = found.expires_ms
    assert "event=certificate_expires" in caplog.text
    authority.issue(node_identity("g", "n5"), "node-n5", days=400, renew=True)
    assert found.refresh()
    assert found.expires_ms > before
    assert found.identity == node_identity("g", "n5")
    assert found.tls_context(is_server=True)
    assert found.tls_context(is_server=False)


@pytest.mark.parametrize(
    ("settings_", "problem"),
    [
        ({"cert_path": "x"}, "both are needed"),
        ({"cert_path": "x", "key_path": "x"}, "peerTlsCaPath"),
        ({"shared_key": "x", "shared_key_file": "y"}, "one of them"),
        ({"shared_key": "short"}, "at least 16"),
        ({"shared_key_file": "/nonexistent"}, "cannot be read"),
        ({"ca_path": "/nonexistent"}, "peerTlsCaPath=/nonexistent"),
    ],
)
def test_wrong_settings_name_the_setting(settings_, problem):
    with pytest.raises(FatalError, match=problem):
        store(SecuritySettings(**settings_))


def test_files_that_do_not_belong_together_are_named(authority, tmp_path):
    certified(authority)
    certified(authority, Identity(Role.ADMIN, "bob"), "admin-bob")
    directory = authority.directory
    mixed = SecuritySettings(
        cert_path=str(directory / "admin.crt"),
        key_path=str(directory / "admin-bob.key"),
        ca_path=str(directory / "ca.crt"),
    )
    with pytest.raises(FatalError, match=r"admin-bob\.key: not the key of"):
        store(mixed)
    other = Authority.create(tmp_path, "other", 10)
    foreign = SecuritySettings(
        cert_path=str(directory / "admin.crt"),
        key_path=str(directory / "admin.key"),
        ca_path=str(other.directory / "ca.crt"),
    )
    with pytest.raises(FatalError, match="not issued by the CA"):
        store(foreign)
