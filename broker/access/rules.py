"""Accounts and what each may do, as the access file says it. Pure.

Source: PlainAccessConfig, PlainPermissionManager, Permission 4.9.7.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.access.addresses import Addresses, parts_of
from broker.limits import ACCESS_HOSTS_MAX
from broker.state.topic_config import UNREAD_TOPICS
from ledgermq.remoting.protocol.access import (
    ACCESS_KEY,
    KEY_LENGTH_MIN,
    SIGNATURE,
    signature_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledgermq.remoting.protocol.command import RemotingCommand

PUB: Final = 4
SUB: Final = 8
_WORDS: Final = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_NAMES: Final = {PUB: "PUB", SUB: "SUB", PUB | SUB: "PUB or SUB"}
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Whoever has an account may send traces, as in RocketMQ."""

OF_ALL_TOPICS: Final = UNREAD_TOPICS | {"TRANS_CHECK_MAX_TIME_TOPIC"}
"""In these lie messages of other topics: who may not read one of those may read none of these."""

ACCOUNT_KEYS: Final = (
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm",
    "defaultGroupPerm", "topicPerms", "groupPerms",
)  # fmt: skip
_FILE_KEYS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})


class BadRules(ValueError):  # noqa: N818  # says what is
    """What is wrong with an access file, or with a change of it; never a secret key."""


class Right(NamedTuple):
    """What a request needs of one topic, or of one consumer group."""

    name: str
    is_group: bool
    any_of: int
    """`PUB` or `SUB`, or both: then one of them is enough."""

    def __str__(self) -> str:
        """Return it as a refusal names it."""
        return f"{_NAMES[self.any_of]} of {'group' if self.is_group else 'topic'} {self.name[:300]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account; permissions are `PUB`, `SUB`, both, or 0."""

    access_key: str
    secret: bytes
    white: Addresses
    is_admin: bool
    default_topic: int
    default_group: int
    topics: Mapping[str, int]
    groups: Mapping[str, int]

    @property
    def is_unbounded(self) -> bool:
        """Whether it is an administrator's to which no list of permissions sets bounds."""
        return self.is_admin and not self.topics and not self.groups

    def has(self, right: Right) -> bool:
        """Tell whether it has a right."""
        if self.is_unbounded:
            return True
        if right == (TRACE_TOPIC, False, PUB):
            return True
        if right.is_group:
            owned = self.groups.get(right.name, self.default_group)
        else:
            owned = self.topics.get(right.name, self._default_of(right.name))
        return bool(owned & right.any_of)

    def _default_of(self, topic: str) -> int:
        """Return what it may of a topic that is not listed."""
        if topic in OF_ALL_TOPICS and not self.may_everywhere(SUB):
            return 0
        return self.default_topic

    def may_everywhere(self, permission: int) -> bool:
        """Tell whether it has a permission for every topic."""
        perms = (self.default_topic, *self.topics.values())
        return self.is_unbounded or all(owned & permission for owned in perms)

    def signed(self, request: RemotingCommand) -> bool:
        """Tell whether a request was signed with its secret key; how long it takes says nothing."""
        due = signature_of(self.secret, request.ext_fields, request.body)
        given = request.ext_fields.get(SIGNATURE, "")
        return hmac.compare_digest(due.encode(), given.encode(errors="replace"))


class Rules:
    """What one reading of the file says."""

    def __init__(self, white: Iterable[Addresses], accounts: Mapping[str, Account]) -> None:
        self._white = tuple(white)
        self.accounts = accounts
        self._hosts: dict[str, tuple[bool, tuple[int, ...]]] = {}

    def is_trusted(self, host: str) -> bool:
        """Tell whether all that comes from an address is let in."""
        return self._known(host)[0]

    def is_trusted_for(self, account: Account, host: str) -> bool:
        """Tell whether an address may use an account without a signature."""
        return account.white.match(self._known(host)[1])

    def account_of(self, request: RemotingCommand) -> Account | None:
        """Return the account that a request names."""
        return self.accounts.get(request.ext_fields.get(ACCESS_KEY, ""))

    def _known(self, host: str) -> tuple[bool, tuple[int, ...]]:
        found = self._hosts.get(host)
        if found is None:
            parts = parts_of(host)
            found = any(white.match(parts) for white in self._white), parts
            if len(self._hosts) >= ACCESS_HOSTS_MAX:
                self._hosts.clear()
            self._hosts[host] = found
        return found


NOBODY: Final = Rules((), {})


def read_rules(document: object) -> Rules:
    """Return the rules of a document as YAML has it. Errors: `ValueError` says what is wrong."""
    if document is None:
        raise BadRules("nothing is in it; a file without accounts says accounts: []")
    if not isinstance(document, dict):
        raise BadRules("keys and values are expected")
    _check_keys(document, _FILE_KEYS, "the file")
    white = [
        Addresses(text)
        for text in texts_in(document, "globalWhiteRemoteAddresses", "the file")
    ]  # fmt: skip
    accounts: dict[str, Account] = {}
    entries = document.get("accounts") or []
    if not isinstance(entries, list):
        raise BadRules("accounts: a list is expected")
    for number, entry in enumerate(entries, 1):
        account = read_account(entry, f"account {number}")
        if account.access_key in accounts:
            raise BadRules(f"accessKey {account.access_key} stands there twice")
        accounts[account.access_key] = account
    return Rules(white, accounts)


def read_account(entry: Any, place: str) -> Account:  # noqa: ANN401  # whatever YAML holds
    """Return one account. Errors: `ValueError` says what is wrong, never a secret key."""
    if not isinstance(entry, dict):
        raise BadRules(f"{place}: keys and values are expected")
    _check_keys(entry, ACCOUNT_KEYS, place)
    keys = [str(entry.get(name) or "") for name in ("accessKey", "secretKey")]
    if min(map(len, keys)) < KEY_LENGTH_MIN:
        raise BadRules(f"{place}: accessKey and secretKey need {KEY_LENGTH_MIN} characters each")
    admin = entry.get("admin", False)
    if not isinstance(admin, bool):
        raise BadRules(f"{place}: admin: true or false is expected")
    return Account(
        access_key=keys[0],
        secret=keys[1].encode(),
        white=Addresses(str(entry.get("whiteRemoteAddress") or "")),
        is_admin=admin,
        default_topic=_permission(entry.get("defaultTopicPerm") or "DENY", place),
        default_group=_permission(entry.get("defaultGroupPerm") or "DENY", place),
        topics=_permissions(entry, "topicPerms", place),
        groups=_permissions(entry, "groupPerms", place),
    )


def texts_in(entry: Mapping[str, Any], name: str, place: str) -> list[str]:
    """Return a list of texts; none if it is not there. Errors: `ValueError`."""
    found = entry.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, (str, int)) for one in found):
        raise BadRules(f"{place}: {name}: a list of texts is expected")
    return [str(one) for one in found]


def _check_keys(entry: Mapping[Any, Any], known: Iterable[str], place: str) -> None:
    unknown = [str(name)[:64] for name in entry if name not in known]
    if unknown:
        raise BadRules(f"{place}: unknown key {unknown[0]!r}")


def _permissions(entry: Mapping[str, Any], name: str, place: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts_in(entry, name, place):
        resource, equals, permission = text.partition("=")
        if not equals or not resource.strip():
            raise BadRules(f"{place}: {name}: {text!r} is not NAME=PERMISSION")
        found[resource.strip()] = _permission(permission, place)
    return found


def _permission(text: object, place: str) -> int:
    found = _WORDS.get(str(text).replace(" ", ""))
    if found is None:
        raise BadRules(f"{place}: {text!r} is not one of {', '.join(_WORDS)}")
    return found
