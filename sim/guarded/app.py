"""One machine that no access file trusts: it asks as accounts do, and as who has none."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.remoting.protocol.access import AccountKey
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from sim.clients.wire import RawConnection
from sim.everyday.app import HabitsApp
from sim.guarded.accounts import CODES, GROUPS, LOCKS, NOTHING, RETRY, SENDS, TOPICS

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.faults.guarded import Guarded
    from sim.guarded.accounts import Account
    from sim.rng import SplitRng

OTHERWISE: Final = "A44 served otherwise than an account may"
BY_ACCESS: Final = "(aclEnable)"
"""With this the remark of a refusal ends that says what an account lacks."""
KEYS: Final = ("own", "own", "own", "own", "wrong", "unknown", "none")
RETRY_P: Final = 0.2


class Question(NamedTuple):
    """What is asked, and with whose keys."""

    code: int
    topic: str
    group: str
    account: Account
    keys: str
    """One of `KEYS`."""

    @property
    def is_allowed(self) -> bool:
        """Whether it is to be served."""
        is_own = self.keys == "own" and self.account.may(self.code, self.topic, self.group)
        return self.code in NOTHING or is_own


class Accounts:
    """Who asks."""

    def __init__(self, life: Life, accounts: tuple[Account, ...]) -> None:
        self._life = life
        self._accounts = accounts
        self._asked = 0

    async def start(self) -> None:
        """Nothing is to be done before."""

    async def step(self, rng: SplitRng) -> None:
        """Ask one member once."""
        life = self._life
        addr = rng.split("broker").choice(tuple(life.brokers))
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return
        try:
            for number in range(rng.split("count").choice((1, 3, 8))):
                question = self._draw(rng.split(f"question{number}"))
                self._asked += 1
                frame = self._frame(question, self._asked)
                self.check(question, await connection.ask(frame, self._asked))
                await asyncio.sleep(0)
        finally:
            connection.close()

    def _draw(self, rng: SplitRng) -> Question:
        code = rng.split("code").choice(CODES)
        topic, group = rng.split("topic").choice(TOPICS), rng.split("group").choice(GROUPS)
        if code not in SENDS and rng.split("retry").chance(RETRY_P):
            topic = RETRY + rng.split("retry group").choice(GROUPS)  # nobody may have it made
        account = rng.split("account").choice(self._accounts)
        return Question(code, topic, group, account, rng.split("keys").choice(KEYS))

    def _frame(self, question: Question, opaque: int) -> bytes:
        """Return a request; of what it names nothing is there, so that nothing comes of it."""
        code, topic, group, account, keys = question
        body = b""
        fields = {"topic": topic, "consumerGroup": group, "queueId": "0"}
        if code == RequestCode.SEND_MESSAGE_V2:
            fields = {
                "a": "guarded", "b": topic, "c": "", "d": "1", "e": "0", "f": "0", "g": "1",
                "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
        elif code == RequestCode.SEND_MESSAGE:
            fields |= {
                "producerGroup": "guarded", "defaultTopic": "", "defaultTopicQueueNums": "1",
                "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "",
                "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
            }  # fmt: skip
            del fields["consumerGroup"]
        elif code == RequestCode.PULL_MESSAGE:
            fields |= {
                "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            }  # fmt: skip
        elif code == RequestCode.UPDATE_CONSUMER_OFFSET:
            fields |= {"commitOffset": "0"}
        elif code in LOCKS:
            queues = [{"topic": topic, "brokerName": "", "queueId": 0}]
            named = {"clientId": "guarded", "consumerGroup": group, "mqSet": queues}
            fields, body = {}, json.dumps(named).encode()
        command = RemotingCommand(code, opaque=opaque, ext_fields=fields, body=body)
        if keys != "none":
            name = account.name if keys != "unknown" else "nobody-has-it"
            secret = account.secret if keys != "wrong" else account.secret + "?"
            command = AccountKey(name, secret).sign(command)
        return b"".join(encode_command(command))

    def check(self, question: Question, answer: RemotingCommand | None) -> None:
        """Judge an answer; who gets none knows nothing."""
        if answer is None:
            return
        self._life.count("asked_by_accounts")
        remark = answer.remark or ""
        is_refused = answer.code == ResponseCode.NO_PERMISSION and remark.endswith(BY_ACCESS)
        if is_refused == question.is_allowed:
            code, topic, group, account, keys = question
            what = "refused" if is_refused else "served"
            self._life.report(
                OTHERWISE,
                f"request {code} of {account.name} (keys: {keys}) for topic {topic} and group"
                f" {group} was {what}: {answer.code} {remark!r}",
            )

    def missing(self) -> str:
        """Nothing is under way."""
        return ""


class GuardedApp(HabitsApp):
    """The program of the machine.

    Args:
        until_ms: when the faults are over.
        accounts: what brokers' access files have.
    """

    def __init__(
        self, name: str, life: Life, settings: Guarded, until_ms: int,
        accounts: tuple[Account, ...],
    ) -> None:  # fmt: skip
        super().__init__(name, life, (settings.every_ms, until_ms))
        self._habits["accounts"] = Accounts(life, accounts)
