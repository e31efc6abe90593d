"""Tag expressions: what a consumer subscribes to, and the exact filter on its side.

Pure. The broker filters by hash code only, so equal hashes of different tags pass it; the client
compares the text. Source: FilterAPI.buildSubscriptionData, SubscriptionData (spec/wire.md 7.3).
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
class Subscription:
    """One topic with an expression: ``*`` or ``TagA || TagB``; ``version`` is wall time in ms."""

    topic: str
    expression: str
    tags: tuple[str, ...]
    version: int

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
            tags_set=list(self.tags),
            code_set=[java_string_hash(tag) for tag in self.tags],
            sub_version=self.version,
        )


def parse_subscription(topic: str, expression: str, version: int) -> Subscription:
    """Return the subscription of ``topic``; an empty expression means all messages.

    Errors: ``InvalidMessage`` for a bad topic or an expression without any tag.
    """
    check_topic(topic)
    text = expression.strip() or ALL
    if text == ALL:
        return Subscription(topic, ALL, (), version)
    check_separators("expression", text)
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))
    if not tags:
        raise InvalidMessage(f"expression {expression!r} names no tag")
    return Subscription(topic, text, tags, version)


def retry_topic(group: str) -> str:
    """Return the topic to which messages of ``group`` are sent back."""
    return RETRY_PREFIX + group
