"""The asyncio client: producer, push consumer, pull consumer.

Speaks RocketMQ's remoting protocol as a 4.9 client; see docs/client.md for how to use it and what
it guarantees.
"""

from client.config import ClientConfig, ConsumeOptions
from client.errors import (
    ClientError,
    InvalidMessage,
    NameServersUnreachable,
    NoRoute,
    NotRunning,
    SendFailed,
    TooManyPending,
)
from client.finder import MessageFinder
from client.message import (
    Attempt,
    ConsumeContext,
    ConsumeFrom,
    ConsumeStatus,
    Message,
    MessageQueue,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
)
from client.observer import ConsumerObserver
from client.producer import Producer
from client.pull import PullConsumer
from client.push import PushConsumer
from client.send_codec import split_batch
from remoting.protocol.errors import Outcome, RemotingError, ResponseError
from remoting.protocol.message import MessageExt

__all__ = [
    "Attempt",
    "ClientConfig",
    "ClientError",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeOptions",
    "ConsumeStatus",
    "ConsumerObserver",
    "InvalidMessage",
    "Message",
    "MessageExt",
    "MessageFinder",
    "MessageQueue",
    "NameServersUnreachable",
    "NoRoute",
    "NotRunning",
    "Outcome",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "RemotingError",
    "ResponseError",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "TooManyPending",
    "split_batch",
]
