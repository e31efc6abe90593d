"""The sample clusters: what their compose files say is what the demo of them walks through.

The files are read as text: their services are blocks of lines, each setting stands on one.
"""

import re
from pathlib import Path

import pytest

from chaos.samples import DIRECTORY, NET, SAMPLES

ROLES = {"2m-2s-async": "ASYNC_MASTER", "2m-2s-sync": "SYNC_MASTER", "2m-noslave": "ASYNC_MASTER"}
KEY = "key:/var/lib/ledgermq-certs/own"


def read(name: str) -> tuple[str, dict[str, str]]:
    """Return what stands before the services, and each service's lines, defaults filled in."""
    text = (DIRECTORY / f"{name}.yaml").read_text()
    text = re.sub(r"\$\{LEDGERMQ_\w+:-([^}]*)\}", r"\1", text)
    head, _, rest = text.partition("\nservices:\n")
    blocks = re.split(r"^  ([\w-]+):\n", rest.partition("\nnetworks:\n")[0], flags=re.MULTILINE)
    return head, dict(zip(blocks[1::2], blocks[2::2], strict=True))


def settings(lines: str) -> dict[str, str]:
    return dict(re.findall(r'LEDGERMQ_(\w+): "?([^",}\n]*)', lines))


def address(lines: str) -> str:
    return re.findall(r'ipv4_address: "([\d.]+)"', lines)[0]


def of_kind(name: str, kind: str) -> dict[str, str]:
    return {one: lines for one, lines in read(name)[1].items() if f"<<: *{kind}\n" in lines}


def test_each_file_has_a_walk_and_each_walk_a_file() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.yaml")} == set(SAMPLES)
    assert Path(__file__).resolve().parents[3] / "docker" / "samples" == DIRECTORY


@pytest.mark.parametrize("name", SAMPLES)
def test_brokers_and_name_servers_are_where_the_walk_looks(name: str) -> None:
    sample = SAMPLES[name]
    brokers = {one: address(lines) for one, lines in of_kind(name, "broker").items()}
    assert brokers == {one: f"{NET}.{number}" for one, number in sample.brokers.items()}
    servers = [f"{address(lines)}:9876" for lines in of_kind(name, "namesrv").values()]
    assert servers == list(sample.name_server_addrs)
    head = settings(read(name)[0])
    assert head["namesrvAddr"] == ";".join(servers)
    assert head["brokerClusterName"] == "DefaultCluster"
    assert head["flushDiskType"] == "ASYNC_FLUSH"


@pytest.mark.parametrize("name", SAMPLES)
def test_all_servers_have_the_key_and_run_without_rights(name: str) -> None:
    head, services = read(name)
    assert "cap_drop: [ALL]" in head
    assert settings(head)["peerSharedKeyFile"] == "/var/lib/ledgermq-certs/own/peers.key"
    assert all(KEY in lines for lines in services.values())
    anchors = ("*key", "<<: *settings", "<<: *controller")
    assert all(
        any(f"environment: {before}{one}" in lines for one in anchors for before in ("", "{"))
        for service, lines in services.items()
        if service != "key"
    )


@pytest.mark.parametrize("name", ROLES)
def test_roles_are_those_of_the_sample(name: str) -> None:
    for broker, lines in of_kind(name, "broker").items():
        found, is_slave = settings(lines), broker.endswith("-s")
        assert found["brokerName"] == broker.removesuffix("-s")
        assert found["brokerId"] == ("1" if is_slave else "0")
        assert found["brokerRole"] == ("SLAVE" if is_slave else ROLES[name])


def test_controllers_are_named_alike_to_all() -> None:
    head, _ = read("controller")
    found = settings(head)
    named = dict(part.split("-", 1) for part in found["controllerDLegerPeers"].split(";"))
    servers = of_kind("controller", "namesrv")
    ids = [settings(lines)["controllerDLegerSelfId"] for lines in servers.values()]
    assert ids == list(named)
    assert found["controllerAddr"].split(";") == list(named.values())
    assert [f"{address(lines)}:9878" for lines in servers.values()] == list(named.values())
    assert found["enableControllerMode"] == "true"
    assert "brokerRole" not in head
