"""What a consumer subscribes to: tags, or SQL92 over the properties of messages.

Pure. The broker filters tags by hash code only, so equal hashes of different tags pass it; the
client compares the text. SQL92 is the broker's alone.
Source: FilterAPI.buildSubscriptionData, SubscriptionData (spec/wire.md 7.3).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ledgermq.client.errors import InvalidMessage
from ledgermq.client.validation import check_separators, check_topic
from ledgermq.remoting.protocol.bodies import SubscriptionData
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.protocol.properties import java_string_hash

ALL = "*"
RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class Sql92:
    """An expression over the properties of messages: ``Sql92("price > 10 AND region = 'eu'")``."""

    expression: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic with an expression: ``*``, ``TagA || TagB``, or SQL92.

    ``version`` is wall time in ms.
    """

    topic: str
    expression: str
    tags: tuple[str, ...]
    version: int
    expression_type: str = "TAG"

    def matches(self, message: MessageExt) -> bool:
        """Return whether the message carries one of the tags."""
        return not self.tags or message.maybe_property("TAGS") in self.tags

    def select(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Return the messages that match, in their order."""
        if not self.tags:
            return list(messages)
        return [message for message in messages if self.matches(message)]

    def to_wire(self) -> SubscriptionData:
        """Return the form that heartbeats carry."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression,
            expression_type=self.expression_type,
            tags_set=list(self.tags),
            code_set=[java_string_hash(tag) for tag in self.tags],
            sub_version=self.version,
        )


def parse_subscription(topic: str, expression: str | Sql92, version: int) -> Subscription:
    """Return the subscription of ``topic``; an empty text means all messages.

    Errors: ``InvalidMessage`` for a bad topic, and for an expression that is no text, names no tag,
    or one that begins or ends with ``|``. Whether SQL92 is right says the broker.
    """
    check_topic(topic)
    if isinstance(expression, Sql92):
        check_separators("expression", expression.expression)
        return Subscription(topic, expression.expression.strip(), (), version, "SQL92")
    if not isinstance(expression, str):
        raise InvalidMessage(f"expression {expression!r} is neither a text of tags nor Sql92(...)")
    text = expression.strip() or ALL
    if text == ALL:
        return Subscription(topic, ALL, (), version)
    check_separators("expression", text)
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))
    if not tags:
        raise InvalidMessage(f"expression {expression!r} names no tag")
    if odd := next((tag for tag in tags if tag[0] == "|" or tag[-1] == "|"), None):
        raise InvalidMessage(f"{odd!r} in {expression!r} is no tag; tags are separated by ' || '")
    return Subscription(topic, text, tags, version)


def retry_topic(group: str) -> str:
    """Return the topic to which messages of ``group`` are sent back."""
    return RETRY_PREFIX + group
