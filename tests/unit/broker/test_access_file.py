"""The access file while others write it, and in more than one role of a process."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest

from broker.access.build import access_file
from broker.access.file import AccessFile
from broker.config import BrokerConfig
from broker.modes.assignment import AsMaster
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.regular import mode_of
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch.in_sync import InSync
from tests.unit.broker.fakes import FakeClock
from tests.unit.broker.test_switching_broker import broker_in

ACCOUNT = "- {{accessKey: {0}, secretKey: secret-{0}, topicPerms: [{1}=SUB]}}\n"
BOTH = "accounts:\n" + ACCOUNT.format("staying", "a") + ACCOUNT.format("leaving", "a")
ONE = "accounts:\n" + ACCOUNT.format("staying", "a")
BAD = "accounts: ["


class Written:
    """The disk, as far as it is asked."""

    def replace(self, path: str, data: bytes) -> None:
        with open(path, "wb") as file:  # noqa: PTH123  # as the real one takes paths
            file.write(data)


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "plain_acl.yml"
    found.write_text(BOTH)
    return found


def read(path) -> AccessFile:
    config = BrokerConfig(acl_enable=True, acl_file=str(path))
    file = access_file(config, Written(), FakeClock())
    assert file is not None
    file.begin()
    return file


def trust_everybody(document) -> None:
    document["globalWhiteRemoteAddresses"] = ["10.0.0.*"]


def keeps_what_was_written_by_hand(path) -> bool:
    path.write_text(BOTH)
    file = read(path)
    path.write_text(ONE)
    asyncio.run(file.change(trust_everybody))
    assert file.rules.is_trusted("10.0.0.1")
    return set(file.rules.accounts) == {"staying"} and "leaving" not in path.read_text()


def test_a_change_by_a_tool_keeps_what_was_written_by_hand(path):
    assert keeps_what_was_written_by_hand(path)


def test_a_tool_does_not_write_over_a_file_that_cannot_be_read(path):
    file = read(path)
    path.write_text(BAD)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"mend .*plain_acl\.yml first: no YAML"):
            asyncio.run(file.change(trust_everybody))
    assert path.read_text() == BAD
    path.write_text(ONE)
    asyncio.run(file.change(trust_everybody))
    assert set(file.rules.accounts) == {"staying"}


def test_files_that_only_rocketmq_would_read_are_told_of(path, caplog):
    read(path)
    assert "access_files_not_read" not in caplog.text
    (path.parent / "acl").mkdir()
    (path.parent / "acl" / "more.yml").write_text(ONE)
    (path.parent / "acl" / "notes.txt").write_text("")
    assert set(read(path).rules.accounts) == {"staying", "leaving"}
    assert f"event=access_files_not_read first={path.parent}/acl/more.yml files=1" in caplog.text


def goes_on_in_the_next_role(path) -> bool:
    path.write_text(BOTH)
    file = read(path)
    path.write_text(BAD)
    assert not file.refresh()
    try:
        file.begin()
    except FatalError:
        return False
    return set(file.rules.accounts) == {"staying", "leaving"}


def test_a_bad_file_does_not_end_a_broker_that_changes_its_role(path):
    assert goes_on_in_the_next_role(path)
    path.write_text(BAD)
    with pytest.raises(FatalError, match="no YAML"):
        read(path)


def test_each_role_of_a_broker_with_controllers_has_the_same_rules(path, tmp_path, monkeypatch):
    found = []

    class Controller:
        def __init__(self, _config, **kinds):
            found.append(kinds["access_file"])

        async def start(self):
            pass

    monkeypatch.setattr("broker.switch.broker.BrokerController", Controller)

    async def main():
        broker = broker_in(tmp_path, {"aclEnable": "true", "rocketmq.acl.plain.file": str(path)})
        for epoch in (1, 2):
            role = AsMaster(own_id=2, epoch=epoch, in_sync=InSync(2, 15_000))
            await broker._begin_role(role, broker._config)

    asyncio.run(main())
    assert found[0] is found[1] is not None


def test_a_file_that_may_be_read_at_last_is_read(path, monkeypatch):
    """What was refused is looked at again when its owner or mode has changed, not its text."""
    file = read(path)
    path.write_text(ONE)
    times = path.stat()
    with monkeypatch.context() as patched:
        patched.setattr(AccessFile, "_read", _may_not)
        assert not file.refresh()
    assert not file.refresh(), "nothing has changed"
    path.chmod(0o640)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.refresh()
    assert set(file.rules.accounts) == {"staying"}


def test_a_file_that_came_when_no_more_could_be_opened_is_read_later(path, monkeypatch, caplog):
    """Whom it shuts out was let in for as long as nobody touched it again."""
    file = read(path)
    path.write_text(ONE)
    with monkeypatch.context() as patched:
        patched.setattr(AccessFile, "_read", _no_more_files)
        assert not file.refresh()
        assert not file.refresh()
    assert caplog.text.count("event=access_not_read") == 1
    assert file.refresh()
    assert set(file.rules.accounts) == {"staying"}
    assert not file.refresh(), "nothing has changed"


def _no_more_files(_file) -> object:
    raise OSError(errno.EMFILE, "Too many open files")


def _may_not(_file) -> object:
    raise PermissionError(13, "Permission denied")


def test_a_link_goes_on_to_lead_to_the_file(path, tmp_path):
    link = tmp_path / "link.yml"
    link.symlink_to(path)
    file = read(link)
    asyncio.run(file.change(trust_everybody))
    assert link.is_symlink()
    assert "10.0.0.*" in path.read_text()
    assert mode_of(str(link)) == mode_of(str(path))


ODD_VALUES = ("!!bool x", "!!int ''", "!!float ''", "!!timestamp x")


def refuses_values_of_no_type(path) -> bool:
    for value in ODD_VALUES:
        path.write_text(BOTH)
        file = read(path)
        path.write_text(f"{BOTH}globalWhiteRemoteAddresses: [{value}]\n")
        try:
            assert not file.refresh()
            assert set(file.rules.accounts) == {"staying", "leaving"}
        except (LookupError, AttributeError):
            return False
    return True


def test_a_value_that_its_tag_does_not_fit_is_a_mistake_like_others(path):
    assert refuses_values_of_no_type(path)
    path.write_text(f"{BOTH}globalWhiteRemoteAddresses: [{ODD_VALUES[0]}]\n")
    with pytest.raises(FatalError, match="a value is not of its type"):
        read(path)


def waits_for_no_pipe(path) -> bool:
    """Whether a pipe is refused under each name that a setting gives a file."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    # Somebody writes nothing into it, so that whoever opens it for reading goes on at once.
    fd = os.open(path, os.O_RDWR)
    os.write(fd, b"a key that everybody can see\n")
    readers = (
        lambda: read(path),
        lambda: CredentialStore(
            SecuritySettings(shared_key_file=str(path)), "n0", lambda: 0
        ).load(),
    )
    refused = 0
    timer = threading.Timer(0.2, os.close, (fd,))  # the end of what waits all the same
    timer.start()
    for reader in readers:
        try:
            reader()
        except FatalError as error:
            refused += "not a regular file" in error.message
    timer.join()
    path.unlink()
    return refused == len(readers)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(path):
    assert waits_for_no_pipe(path)


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (BY_TESTS["named-file-waited-for"], waits_for_no_pipe),
        (BY_TESTS["tagged-value-crashes"], refuses_values_of_no_type),
        (BY_TESTS["account-removed-by-hand-comes-back"], keeps_what_was_written_by_hand),
        (BY_TESTS["bad-access-file-ends-a-switch"], goes_on_in_the_next_role),
    ],
)
def test_the_rules_find_the_bugs_planted_against_them(mutant, rule, path):
    with planted(mutant):
        assert not rule(path)
    assert rule(path)
