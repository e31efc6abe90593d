"""For whom the commands of administrators sign."""

import asyncio

import pytest

from cli import signing
from cli.admin import AdminError
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.signing import KeyCredentials, Trust, verify
from ledgermq.runtime.clock import SystemClock
from tests.unit.client.test_admin import KEY
from tests.unit.client.test_admin import Asked as AskedOnce

LEADER, SOLO = {"group": "g", "node": "n0"}, {"node": "solo", "mode": "ASYNC_MASTER"}


class Asked(AskedOnce):
    """Answers with an object, as what administrators ask is answered."""

    async def request(self, addr, command, timeout_ms):
        answer = await super().request(addr, command, timeout_ms)
        return RemotingCommand(0, body=answer.body or b"{}")


@pytest.mark.parametrize(("status", "audience"), [(LEADER, "g/n0"), (SOLO, "solo/solo")])
def test_requests_are_signed_for_the_broker_also_in_no_group(status, audience, monkeypatch):
    monkeypatch.setattr(signing, "find_credentials", lambda: KeyCredentials(KEY, "me"))
    asked = Asked(status)
    asyncio.run(signing.ask_signed(asked, "a", RequestCode.DELETE_EXPIRED_COMMITLOG))
    now_ms = SystemClock().wall_ms()
    verify(asked.kept[0], Trust((KEY,)), now_ms=now_ms, audience=audience)


def test_nothing_is_signed_for_who_does_not_say_who_it_is(monkeypatch):
    monkeypatch.setattr(signing, "find_credentials", lambda: KeyCredentials(KEY, "me"))
    with pytest.raises(AdminError, match="does not say who it is"):
        asyncio.run(signing.ask_signed(Asked({}), "a", RequestCode.COMPACT))
