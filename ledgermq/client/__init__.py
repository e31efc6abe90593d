"""The asyncio client: producer, push consumer, pull consumer.

Speaks RocketMQ's remoting protocol as a 4.9 client; see docs/client.md for how to use it and what
it guarantees.
"""

from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.errors import (
    BatchFailed,
    ClientError,
    InvalidMessage,
    NameServersUnreachable,
    NoRoute,
    NotRunning,
    OffsetsUnusable,
    SelectorFailed,
    SendFailed,
    StrategyFailed,
    TooManyPending,
)
from ledgermq.client.finder import MessageFinder
from ledgermq.client.message import (
    Attempt,
    ConsumeContext,
    ConsumeFrom,
    ConsumeStatus,
    Message,
    MessageModel,
    MessageQueue,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
)
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.producer import Producer
from ledgermq.client.pull import PullConsumer
from ledgermq.client.push import PushConsumer
from ledgermq.client.rebalance import allocate_averagely, allocate_by_circle
from ledgermq.client.selectors import QueueSelector, select_by_hash, select_by_random
from ledgermq.client.send_codec import split_batch
from ledgermq.client.strategies import (
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateNearby,
)
from ledgermq.client.subscription import Sql92
from ledgermq.remoting.protocol.errors import Outcome, RemotingError, ResponseError
from ledgermq.remoting.protocol.message import MessageExt

__all__ = [
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateNearby",
    "Attempt",
    "BatchFailed",
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
    "MessageModel",
    "MessageQueue",
    "NameServersUnreachable",
    "NoRoute",
    "NotRunning",
    "OffsetsUnusable",
    "Outcome",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueSelector",
    "RemotingError",
    "ResponseError",
    "SelectorFailed",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Sql92",
    "StrategyFailed",
    "TooManyPending",
    "allocate_averagely",
    "allocate_by_circle",
    "select_by_hash",
    "select_by_random",
    "split_batch",
]
