"""``docker/entrypoint.py``: what the environment says is what the server reads."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from ledgermq.remoting.protocol.certificates import node_identity
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.config import load_properties

SCRIPT = Path(__file__).parents[3] / "docker" / "entrypoint.py"


@pytest.fixture
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_what_commands_in_the_container_read_is_no_setting_of_its_server(entrypoint):
    """A broker did not start: TLS_CA is no such key."""
    names = {
        name
        for path in (SCRIPT.parents[1] / "cli").rglob("*.py")
        for name in re.findall(r"\bLEDGERMQ_([A-Z]+(?:_[A-Z]+)*)\b", path.read_text())
    } | {"TLS_CA", "TLS_CERT", "TLS_KEY"}
    assert len(names) > 7
    given = {f"LEDGERMQ_{name}": "x" for name in names} | {"LEDGERMQ_listenPort": "1"}
    assert entrypoint.settings(given, "namesrv") == {"listenPort": "1", "bindAddress": "0.0.0.0"}


def test_a_value_arrives_as_it_is_and_is_no_other_setting(entrypoint, tmp_path):
    given = {
        "LEDGERMQ_peerSharedKey": "a key that ends with one\\",
        "LEDGERMQ_regionId": "C:\\x\\u0041=#!",
        "LEDGERMQ_traceOn": "true\nlistenPort=1",
        "LEDGERMQ_namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
    }
    config = tmp_path / "server.conf"
    entrypoint.write_config(config, entrypoint.settings({**given, "PATH": "/bin"}, "namesrv"))
    expected = {name.removeprefix("LEDGERMQ_"): value for name, value in given.items()}
    assert load_properties(str(config)) == {**expected, "bindAddress": "0.0.0.0"}


def test_certificates_are_made_where_that_was_broken_off_between_two_files(
    entrypoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(entrypoint, "CERTIFICATES", tmp_path)
    for name in ("ca", "n0"):
        (tmp_path / name).mkdir()
    for key in ("ca/ca.key", "ca/node-G-n0.key"):
        (tmp_path / key).write_text("of no certificate")
    entrypoint.make_certificates("G", ["n0"])
    own = SecuritySettings(
        cert_path=str(tmp_path / "n0/node.crt"),
        key_path=str(tmp_path / "n0/node.key"),
        ca_path=str(tmp_path / "n0/ca.crt"),
    )
    found = CredentialStore(own, "n0", SystemClock().wall_ms)
    found.load()
    assert found.identity == node_identity("G", "n0")
    before = (tmp_path / "n0/node.key").read_bytes()
    entrypoint.make_certificates("G", ["n0"])
    assert (tmp_path / "n0/node.key").read_bytes() == before
