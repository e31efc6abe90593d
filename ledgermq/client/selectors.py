"""Which queue an ordered send goes to: by the hash of a key, at random, or by a function.

Pure. A selector gets the writable queues of the topic, sorted as RocketMQ sorts them, and the
message; the same key gives the same queue as RocketMQ's SelectMessageQueueByHash, as long as the
topic has the same queues.
Source: SelectMessageQueueByHash, SelectMessageQueueByRandom.
"""

from collections.abc import Callable, Sequence
from functools import partial

from ledgermq.client.errors import InvalidMessage, SelectorFailed
from ledgermq.client.message import Message, MessageQueue
from ledgermq.remoting.protocol.properties import java_string_hash
from ledgermq.runtime.rng import Rng, SystemRng

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
Choice = Callable[[Sequence[MessageQueue]], MessageQueue]
"""A selector with its message."""

_INT32_END = 1 << 31
_INT64_END = 1 << 63


def select_by_hash(key: str | int) -> QueueSelector:
    """Return the selector that takes the queue of a key: messages of one key keep their order.

    A number counts as Java's Integer where it fits one, else as a Long.
    """
    code = abs(_java_hash(key))
    return lambda queues, _message: queues[code % len(queues)]


def select_by_random(rng: Rng | None = None) -> QueueSelector:
    """Return the selector that takes any queue."""
    source = rng or SystemRng()
    return lambda queues, _message: queues[source.randint(0, len(queues) - 1)]


def destination_of(
    queue: MessageQueue | QueueSelector | None, message: Message
) -> MessageQueue | Choice | None:
    """Return the queue of a message, or how it is chosen; None if any will do.

    Errors: ``InvalidMessage`` for what is no queue of the message's topic.
    """
    if queue is None and message.sharding_key:
        queue = select_by_hash(message.sharding_key)
    if queue is None:
        return None
    if callable(queue):
        return partial(choose, queue, message)
    if not isinstance(queue, MessageQueue) or queue.topic != message.topic:
        raise InvalidMessage(f"{queue!r} is no queue of the message's topic {message.topic!r}")
    return queue


def choose(select: QueueSelector, message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return what a selector chooses. Errors: ``SelectorFailed`` if that is no queue of these."""
    name = getattr(select, "__name__", type(select).__name__)
    try:
        chosen = select(queues, message)
    except Exception as error:  # whatever a function of the user's raises
        raise SelectorFailed(f"selector {name} failed: {error!r}; nothing was sent") from error
    if not isinstance(chosen, MessageQueue) or chosen not in queues:
        said = f"selector {name} returned {chosen!r}, no writable queue of topic {message.topic!r}"
        raise SelectorFailed(f"{said}; nothing was sent")
    return chosen


def _java_hash(key: str | int) -> int:
    """Return the key's hash code in Java, an int32. Errors: ``TypeError``, ``ValueError``."""
    if isinstance(key, str):
        return java_string_hash(key)
    if not isinstance(key, int) or isinstance(key, bool):
        raise TypeError(f"a key is a text or a whole number, not {type(key).__name__}")
    if -_INT32_END <= key < _INT32_END:
        return key
    if not -_INT64_END <= key < _INT64_END:
        raise ValueError(f"key {key} does not fit 64 bits")
    bits = key & (2 * _INT64_END - 1)
    code = (bits ^ bits >> 32) & (2 * _INT32_END - 1)
    return code - 2 * _INT32_END if code >= _INT32_END else code
