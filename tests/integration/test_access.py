"""A broker with access control, asked by our own client over real connections."""

from __future__ import annotations

import asyncio
import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from broker.access import file as access_file
from ledgermq import (
    ClientConfig,
)
from ledgermq.remoting.protocol.access import AccountKey
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.runtime.errors import FatalError
from tests.integration.broker_cluster import until
from tests.integration.plain_broker import Plain, plain
from tests.integration.test_second_port import ASK_MS

if TYPE_CHECKING:
    from pathlib import Path

RULES = """
accounts:
- accessKey: rooooot
  secretKey: secret-r
  admin: true
- accessKey: publisher
  secretKey: secret-p
  defaultTopicPerm: DENY
  topicPerms:
  - orders=PUB
- accessKey: consumer
  secretKey: secret-c
  topicPerms:
  - orders=SUB
  groupPerms:
  - g=SUB
"""
ROOT = AccountKey("rooooot", "secret-r")
PUBLISHER = AccountKey("publisher", "secret-p")


def rules_in(tmp_path: Path, text: str = RULES) -> str:
    path, beside = tmp_path / "plain_acl.yml", tmp_path / "plain_acl.yml.new"
    beside.write_text(text)
    beside.chmod(0o600)
    beside.replace(path)  # a broker that looks meanwhile reads no half of it
    return str(path)


async def asked(
    broker: Plain, account: AccountKey | None, code: int, fields: dict[str, str] | None = None
) -> RemotingCommand:
    request = RemotingCommand(code, ext_fields=fields or {})
    if account is not None:
        request = account.sign(request)
    return await broker.client.request(broker.config.broker_addr, request, ASK_MS)


TOPIC = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip


def test_rules_change_by_the_file_and_by_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access_file, "REFRESH_MS", 20)
    path = rules_in(tmp_path)
    ask_code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG

    async def main() -> None:
        async with plain(tmp_path / "store", acl_enable=True, acl_file=path) as broker:
            assert (await asked(broker, None, RequestCode.GET_ALL_TOPIC_CONFIG)).code == 16
            assert (await asked(broker, PUBLISHER, 17, TOPIC)).code == 16
            assert (await asked(broker, ROOT, 17, TOPIC)).code == 0

            fields = {"accessKey": "newcomer", "secretKey": "secret-n", "topicPerms": "orders=SUB"}
            new = AccountKey("newcomer", "secret-n")
            assert (await asked(broker, new, 30, {"topic": "orders", "queueId": "0"})).code == 16
            assert (await asked(broker, PUBLISHER, 50, fields)).code == 16
            assert (await asked(broker, ROOT, 50, fields)).code == 0
            assert (await asked(broker, new, 30, {"topic": "orders", "queueId": "0"})).code == 0
            shown = await asked(broker, ROOT, ask_code)
            names = [one["accessKey"] for one in json.loads(shown.body)["plainAccessConfigs"]]
            assert names == ["rooooot", "publisher", "consumer", "newcomer"]
            assert b"secret-" not in shown.body
            mode = stat.S_IMODE((tmp_path / "plain_acl.yml").stat().st_mode)
            assert mode == 0o600, "the file holds secret keys"

            wrong = await asked(broker, ROOT, 50, {"accessKey": "newcomer", "topicPerms": "a=ALL"})
            assert (wrong.code, "ALL" in (wrong.remark or "")) == (209, True)
            assert (await asked(broker, ROOT, 51, {"accessKey": "newcomer"})).code == 0
            assert (await asked(broker, ROOT, 51, {"accessKey": "newcomer"})).code == 210
            assert (await asked(broker, new, 30, {"topic": "orders", "queueId": "0"})).code == 16
            version = (await asked(broker, ROOT, 52)).ext_fields["version"]
            assert json.loads(version)["counter"] == 2

            for half, told in (("accounts: [ {accessKey: half", "line 2"), ("", "nothing is in")):
                rules_in(tmp_path, half)
                await until(lambda told=told: told in caplog.text, "the bad file is told")
                assert (await asked(broker, ROOT, 52)).code == 0, "the rules before count"
            rules_in(tmp_path, RULES.replace("secret-r", "secret-R"))
            changed = AccountKey("rooooot", "secret-R")
            for _ in range(200):
                if (await asked(broker, changed, 52)).code == 0:
                    break
                await asyncio.sleep(0.02)
            assert (await asked(broker, ROOT, 52)).code == 16
            white = {"globalWhiteAddrs": "127.0.0.1", "aclFileFullPath": ""}
            assert (await asked(broker, changed, 53, white)).code == 0
            assert (await asked(broker, None, 52)).code == 0

    asyncio.run(main())
    assert "secret-" not in caplog.text


def test_a_broker_without_access_control_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with plain(tmp_path) as broker:
            assert (await asked(broker, None, 51, {"accessKey": "a"})).code == 210
            for code in (52, 54):
                answer = await asked(broker, None, code)
                assert (answer.code, "aclEnable=false" in (answer.remark or "")) == (1, True)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"), ("accounts: {", "no YAML, line 2"),
        ("accounts: 7", "a list is expected"), ("#" * 200_000, "larger than"),
        ("[" * 100_000, "no YAML"), ("", "nothing is in it"), ("# none\n", "nothing is in it"),
    ],
)  # fmt: skip
def test_no_broker_starts_without_rules_that_can_be_read(
    tmp_path: Path, text: str | None, says: str
) -> None:
    path = rules_in(tmp_path, text or "")
    if text is None:
        (tmp_path / "plain_acl.yml").unlink()

    async def main() -> None:
        async with plain(tmp_path / "store", acl_enable=True, acl_file=path):
            raise AssertionError("it started")

    with pytest.raises(FatalError, match=says) as error:
        asyncio.run(main())
    assert "rocketmq.acl.plain.file" in error.value.message


def config(namesrv: str, group: str, account: AccountKey | None) -> ClientConfig:
    keys: dict[str, Any] = {}
    if account is not None:
        keys = {"access_key": account.access_key, "secret_key": account.secret_key}
    found = ClientConfig(namesrv_addrs=(namesrv,), group=group, **keys)
    assert account is None or account.secret_key not in repr(found)
    return found
