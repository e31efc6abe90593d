"""What a controller says to files that cannot be, and to changes without the key."""

import inspect

import pytest

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.signing import (
    CONTROLLER_AUDIENCE,
    NAMESRV_AUDIENCE,
    KeyCredentials,
    sign,
)
from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.config import ControllerConfig
from namesrv.controller.server import ControllerServer

KEY = "a key of many characters"
CLOCK = SystemClock()
ADMINISTRATION = (RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CLEAN_BROKER_DATA)


def start(path):
    """Start a controller over a path, as far as its files."""
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": "127.0.0.1:1"}, store_path=str(path),
        bind_address="127.0.0.1",
    )  # fmt: skip
    server = ControllerServer(config, SecuritySettings(), (CLOCK, RealDisk(), SystemRng(7)), 1)
    server.controller.start(server._links)


def test_a_store_path_that_is_a_file_is_told_in_one_line(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(FatalError, match=r"controllerStorePath=.*file is not a directory"):
        start(path)


def test_a_journal_that_is_a_directory_is_told_in_one_line(tmp_path):
    (tmp_path / "journal").mkdir()
    with pytest.raises(FatalError, match="journal exists and is not a regular file"):
        start(tmp_path)


class Connection:
    id = 1
    remote = ("127.0.0.1", 4711)


OWN, OTHER = "127.0.0.1:1", "127.0.0.1:2"


def is_let_in(code, key="", audience=CONTROLLER_AUDIENCE + OWN):
    """Return whether a request from the controller's own machine is let in."""
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": OWN, "n1": OTHER}, store_path="/nonexistent",
        bind_address="127.0.0.1", is_authenticated=True,
    )  # fmt: skip
    machine = CLOCK, RealDisk(), SystemRng(7)
    server = ControllerServer(config, SecuritySettings(shared_key=KEY), machine, 1)
    server._credentials.load()
    command = RemotingCommand(code, ext_fields={"brokerName": "a", "brokerId": "2"})
    if key:
        command = sign(
            command, KeyCredentials(key.encode(), "admin"), now_ms=CLOCK.wall_ms(), nonce="1",
            audience=audience,
        )  # fmt: skip
    answer = server.requests.commands[code](Connection(), command)
    if inspect.iscoroutine(answer):
        answer.close()
        return True
    assert answer.code == 16
    assert "--key-file" in answer.remark or "controllerDLegerPeers" in answer.remark
    return False


@pytest.mark.parametrize("code", [1001, 1002, 1003, 1011, 1013])
def test_what_another_controller_was_told_counts_nothing_here(code):
    assert is_let_in(code, KEY)
    # A name of this controller that the controllers do not use may be one of another one.
    for other in (CONTROLLER_AUDIENCE + OTHER, CONTROLLER_AUDIENCE + "alias:1", NAMESRV_AUDIENCE):
        assert not is_let_in(code, KEY, other)
    with planted(BY_TESTS["controller-takes-what-another-was-told"]):
        assert is_let_in(code, KEY, CONTROLLER_AUDIENCE + OTHER)


@pytest.mark.parametrize("code", ADMINISTRATION)
def test_administration_is_signed_from_the_same_machine_too(code):
    assert not is_let_in(code)
    assert not is_let_in(code, "another key of characters")
    assert is_let_in(code, KEY)
    with planted(BY_TESTS["controller-obeys-its-machine"]):
        assert is_let_in(code)
