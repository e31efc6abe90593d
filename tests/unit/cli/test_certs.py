"""``ledgermq certs``: what it makes, what it refuses to overwrite, what it shows."""

import pytest
from cryptography import x509

from cli.certificates import Authority
from cli.main import run
from ledgermq.remoting.protocol.certificates import identity_of, node_identity, read_certificates


@pytest.fixture
def directory(tmp_path):
    found = tmp_path / "certs"
    assert run(["certs", "init", str(found)]) == 0
    return found


def make_node(directory, *more):
    arguments = ["--group", "broker-a", "--id", "n0", "--host", "127.0.0.1", "--host", "n0"]
    return run(["certs", "node", str(directory), *arguments, *more])


def test_keys_are_for_their_owner_alone(directory):
    assert make_node(directory) == 0
    assert run(["certs", "admin", str(directory), "--name", "alice"]) == 0
    for path in directory.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    (certificate,) = read_certificates((directory / "node-broker-a-n0.crt").read_bytes())
    assert identity_of(certificate) == node_identity("broker-a", "n0")
    assert not list(directory.glob("*.part"))


def test_nothing_is_overwritten(directory, capsys):
    assert make_node(directory) == 0
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    capsys.readouterr()
    assert make_node(directory) == 2
    assert "renew it with --renew" in capsys.readouterr().err
    assert run(["certs", "init", str(directory)]) == 2
    assert "worthless" in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in directory.iterdir()}


def test_renewal_keeps_key_and_name(directory):
    assert make_node(directory, "--days", "1") == 0
    key = (directory / "node-broker-a-n0.key").read_bytes()
    old = (directory / "node-broker-a-n0.crt").read_bytes()
    assert make_node(directory, "--renew") == 0
    new = (directory / "node-broker-a-n0.crt").read_bytes()
    assert (directory / "node-broker-a-n0.key").read_bytes() == key
    assert new != old
    (before,), (after,) = read_certificates(old), read_certificates(new)
    assert identity_of(before) == identity_of(after)
    assert after.not_valid_after_utc > before.not_valid_after_utc
    assert after.public_key() == before.public_key()


def hosts_of(path):
    (certificate,) = read_certificates(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names][1:]


def test_renewal_keeps_hosts_unless_others_are_given(directory):
    """The command of operations.md names none, and the new certificate was of no host."""
    assert make_node(directory) == 0
    path = directory / "node-broker-a-n0.crt"
    renew = ["certs", "node", str(directory), "--group", "broker-a", "--id", "n0", "--renew"]
    assert run(renew) == 0
    assert hosts_of(path) == ["127.0.0.1", "n0"]
    assert run([*renew, "--host", "::1"]) == 0
    assert hosts_of(path) == ["::1"]


def test_what_cannot_be_renewed_is_left_as_it_is(directory, capsys):
    assert make_node(directory) == 0
    path = directory / "node-broker-a-n0.crt"
    alias = directory / "node-broker_a-n0.crt"
    for end in (".crt", ".key"):
        path.with_suffix(end).rename(alias.with_suffix(end))
    before = alias.read_bytes()
    renew = ["certs", "node", str(directory), "--group", "broker%a", "--id", "n0", "--renew"]
    assert run(renew) == 2
    assert "is of node/broker-a/n0" in capsys.readouterr().err
    alias.with_suffix(".key").write_text("no key")
    assert run(renew) == 2
    assert alias.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["node", "DIR", "--group", "g", "--id", "n7", "--renew"], 2, "nothing to renew"),
        (["node", "DIR", "--group", "g/h", "--id", "n7"], 2, "no name of a group"),
        (["node", "DIR", "--group", "g", "--id", "node"], 2, "does not end in a number"),
        (["admin", "DIR", "--name", "a b"], 2, "letters, digits"),
        (["node", "/nonexistent", "--group", "g", "--id", "n0"], 2, "ledgermq certs init"),
        (["key", "DIR/ca.key"], 2, "exists"),
        (["node", "DIR", "--group", "g", "--id", "n7", "--host", "ü"], 2, "no name of a host"),
        (["init", "DIR/other", "--name", " "], 2, "a name is expected"),
    ],
)
def test_what_cannot_be_done_says_why(directory, capsys, arguments, code, said):
    arguments = [word.replace("DIR", str(directory)) for word in arguments]
    assert run(["certs", *arguments]) == code
    assert said in capsys.readouterr().err


def test_show_tells_who_until_when_and_what_is_over(directory, capsys):
    assert make_node(directory) == 0
    capsys.readouterr()
    assert run(["certs", "show", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "node/broker-a/n0, until" in shown
    assert "CA CN=LedgerMQ CA" in shown
    authority = Authority.open(directory)
    authority.issue(node_identity("broker-a", "n9"), "node-broker-a-n9", days=0)
    assert run(["certs", "show", str(directory / "node-broker-a-n9.crt")]) == 1
    assert "EXPIRED" in capsys.readouterr().out
    (directory / "bad.crt").write_text("nothing")
    assert run(["certs", "show", str(directory)]) == 1
    assert "no certificate in PEM" in capsys.readouterr().out


def test_a_shared_key_is_long_and_secret(tmp_path, capsys):
    path = tmp_path / "keys" / "cluster.key"
    assert run(["certs", "key", str(path)]) == 0
    assert len(path.read_text().strip()) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"peerSharedKeyFile={path}" in capsys.readouterr().out
