"""What accounts may do, drawn, and what the access file says of it. Pure.

The rules are written here anew from docs/access.md: nothing is imported of who keeps to them.
Source: docs/access.md#the-file, #what-requests-need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledgermq.remoting.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.rng import SplitRng

PUB: Final = "PUB"
SUB: Final = "SUB"
WORDS: Final = ("DENY", PUB, SUB, f"{PUB}|{SUB}")
TOPICS: Final = ("guarded-0", "guarded-1", "guarded-2", "SCHEDULE_TOPIC_XXXX")
"""Those that nobody has made, and one in which messages of all topics wait."""
WAITING: Final = TOPICS[-1]
GROUPS: Final = ("guards-0", "guards-1")
ACCOUNTS: Final = 5
LISTED_P: Final = 0.5
RETRY: Final = "%RETRY%"

NOTHING: Final = frozenset({RequestCode.RAFT_STATUS})
"""Requests that need no account."""
FIGURES: Final = frozenset({
    RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_ALL_DELAY_OFFSET,
})  # fmt: skip
"""Requests that any account may send."""
SENDS: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2})
CONSUMES: Final = frozenset({
    RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
})  # fmt: skip
LOOKS: Final = frozenset({RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET})
OF_GROUPS: Final = frozenset({RequestCode.GET_CONSUMER_LIST_BY_GROUP})
LOCKS: Final = frozenset({RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ})
OF_ADMINS: Final = frozenset({
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_SUBSCRIPTIONGROUP,
})  # fmt: skip
CODES: Final = tuple(
    sorted(NOTHING | FIGURES | SENDS | CONSUMES | LOOKS | OF_GROUPS | LOCKS | OF_ADMINS)
)


class Account(NamedTuple):
    """One account; permissions are `WORDS`."""

    name: str
    secret: str
    is_admin: bool
    default_topic: str
    default_group: str
    topics: dict[str, str]
    groups: dict[str, str]

    @property
    def may_all(self) -> bool:
        """Whether no list of permissions bounds it."""
        return self.is_admin and not self.topics and not self.groups

    def may_topic(self, topic: str, words: Iterable[str]) -> bool:
        """Tell whether it has one of some permissions of a topic."""
        if topic.startswith(RETRY):
            return self.may_group(topic.removeprefix(RETRY))
        has = self.topics.get(topic)
        if has is None:
            has = self.default_topic
            everything = (self.default_topic, *self.topics.values())
            if topic == WAITING and not all(SUB in one for one in everything):
                has = "DENY"
        return self.may_all or any(word in has for word in words)

    def may_group(self, group: str) -> bool:
        """Tell whether it may consume as a group."""
        return self.may_all or SUB in self.groups.get(group, self.default_group)

    def may(self, code: int, topic: str, group: str) -> bool:
        """Tell whether it may send a request that names a topic and a group."""
        if code in NOTHING or code in FIGURES:
            return True
        if code in SENDS:
            return self.may_topic(topic, (PUB,))
        if code in LOOKS:
            return self.may_topic(topic, (PUB, SUB))
        if code in OF_GROUPS:
            return self.may_group(group)
        if code in CONSUMES or code in LOCKS:
            return self.may_topic(topic, (SUB,)) and self.may_group(group)
        return self.is_admin


def draw_accounts(rng: SplitRng) -> tuple[Account, ...]:
    """Return the accounts of a plan; ``rng``: a stream of its own."""
    return tuple(_draw(rng.split(f"account{number}"), number) for number in range(ACCOUNTS))


def _draw(rng: SplitRng, number: int) -> Account:
    lists = [
        {name: stream.split("word").choice(WORDS)
         for name, stream in ((name, rng.split(name)) for name in names)
         if stream.chance(LISTED_P)}
        for names in (TOPICS, GROUPS)
    ]  # fmt: skip
    is_admin = rng.split("admin").chance(0.3)
    if is_admin and rng.split("without lists").chance(0.5):
        lists = [{}, {}]
    return Account(
        f"account-{number}",
        f"secret-{number}-{rng.split('secret').randint(0, 9_999)}",
        is_admin,
        rng.split("default topic").choice(WORDS),
        rng.split("default group").choice(WORDS),
        *lists,
    )


def document_of(accounts: Iterable[Account], trusted: Iterable[str]) -> dict[str, Any]:
    """Return the access file of these accounts, as YAML has it.

    ``trusted``: the addresses that need no account.
    """
    return {
        "globalWhiteRemoteAddresses": list(trusted),
        "accounts": [
            {
                "accessKey": one.name,
                "secretKey": one.secret,
                "admin": one.is_admin,
                "defaultTopicPerm": one.default_topic,
                "defaultGroupPerm": one.default_group,
                "topicPerms": [f"{name}={word}" for name, word in one.topics.items()],
                "groupPerms": [f"{name}={word}" for name, word in one.groups.items()],
            }
            for one in accounts
        ],
    }
