"""What the commands for controllers say where none of these leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cli import controller
from cli.admin import AdminError
from ledgermq.remoting.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Mapping


def look_for_the_leader(
    monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, Mapping[str, str]]
) -> tuple[str, str]:
    """Ask three controllers, of which those that answer say ``fields`` of who leads."""

    async def request(_: Any, address: str, code: int) -> RemotingCommand:
        assert code == 1005
        if address not in fields:
            raise AdminError(f"{address}: cannot connect; does a controller run there?")
        return RemotingCommand(code=0, ext_fields=dict(fields[address]))

    monkeypatch.setattr(controller, "_request", request)
    monkeypatch.setattr(controller, "RETRY_S", 0)
    return asyncio.run(controller._leader(None, ("c:1", "c:2", "c:3")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        # The one that is left still names the leader that is gone.
        ({"c:1": {"isLeader": "false", "controllerLeaderAddress": "c:3"}}, "c:2: cannot connect"),
        ({"c:3": {"isLeader": "false"}}, "c:3 does not lead"),
        ({}, "c:3: cannot connect"),
    ],
)
def test_without_a_majority_it_is_said_what_has_to_run(
    monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, Mapping[str, str]], reason: str
) -> None:
    with pytest.raises(AdminError) as found:
        look_for_the_leader(monkeypatch, fields)
    assert "a majority of the name servers with enableControllerInNamesrv=true" in str(found.value)
    assert reason in str(found.value)


def test_the_one_that_leads_is_found_by_what_another_says(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {
        "c:1": {"isLeader": "false", "controllerLeaderAddress": "d:9"},
        "d:9": {"isLeader": "true", "controllerLeaderAddress": "d:9"},
    }
    assert look_for_the_leader(monkeypatch, fields) == ("d:9", "d:9")
