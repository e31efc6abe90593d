"""What a controller says to files that cannot be, and to changes without the key."""

import asyncio
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
from namesrv.controller.liveness import Heard
from namesrv.controller.node import WATCH_MS
from namesrv.controller.server import ControllerServer

KEY = "a key of many characters"
CLOCK = SystemClock()
ADMINISTRATION = (RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CLEAN_BROKER_DATA)


def start(path, clock=CLOCK):
    """Start a controller over a path, as far as its files; return it."""
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": "127.0.0.1:1"}, store_path=str(path),
        bind_address="127.0.0.1",
    )  # fmt: skip
    server = ControllerServer(config, SecuritySettings(), (clock, RealDisk(), SystemRng(7)), 1)
    server.controller.start(server._links)
    return server.controller


def test_a_store_path_that_is_a_file_is_told_in_one_line(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(FatalError, match=r"controllerStorePath=.*file is not a directory"):
        start(path)


def test_a_journal_that_is_a_directory_is_told_in_one_line(tmp_path):
    (tmp_path / "journal").mkdir()
    with pytest.raises(FatalError, match="journal exists and is not a regular file"):
        start(tmp_path)


class SteppedClock(SystemClock):
    """It goes on when the test says."""

    ms = 50_000

    def monotonic_ms(self):
        return self.ms


def test_a_controller_that_stood_still_takes_nobody_for_dead_before_it_has_listened(tmp_path):
    """Timers come before what has arrived, so its look is earlier than heartbeats that wait."""

    async def body():
        clock = SteppedClock()
        controller = start(tmp_path, clock)
        liveness = controller.liveness
        clock.ms += WATCH_MS
        controller._watch()
        assert liveness.hear("a", 1, Heard(clock.ms, 3_000, "h:1", 1, 1, 0))
        clock.ms += 4_000
        controller._watch()
        assert liveness.get("a", 1) is not None
        # From then on it counts what it does not hear.
        for _ in range(3_000 // WATCH_MS - 2):
            clock.ms += WATCH_MS
            controller._watch()
        assert liveness.get("a", 1) is not None
        for _ in range(2):
            clock.ms += WATCH_MS
            controller._watch()
        assert liveness.get("a", 1) is None
        await controller.stop()

    asyncio.run(body())


def test_a_controller_that_takes_its_own_stall_for_silence_is_seen(tmp_path):
    with planted(BY_TESTS["stall-taken-for-silence"]), pytest.raises(AssertionError):
        test_a_controller_that_stood_still_takes_nobody_for_dead_before_it_has_listened(tmp_path)


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
