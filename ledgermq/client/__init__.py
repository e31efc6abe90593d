"""The asyncio client: producer, push consumer, pull consumer.

Speaks RocketMQ's remoting protocol as a 4.9 client; see docs/client.md for how to use it and what
it guarantees.
"""

from ledgermq.client.admin import (
    AdminClient,
    BrokerPlace,
    GroupConnections,
    Member,
    QueueProgress,
    QueueStats,
)
from ledgermq.client.config import ClientConfig, ConsumeOptions, LitePullOptions, TransactionOptions
from ledgermq.client.deciding import TransactionListener
from ledgermq.client.errors import (
    BatchFailed,
    ClientError,
    InvalidMessage,
    NameServersUnreachable,
    NoOffset,
    NoReply,
    NoRoute,
    NotJoined,
    NotRunning,
    NotTaken,
    OffsetsUnusable,
    SelectorFailed,
    SendFailed,
    StrategyFailed,
    TooManyPending,
    Unfinished,
)
from ledgermq.client.finder import MessageFinder
from ledgermq.client.halves import HalfMessage, TransactionResult, TransactionState
from ledgermq.client.hooks import Consuming, Decided, Hook, Sending, SendKind
from ledgermq.client.lite_pull import LitePullConsumer
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
from ledgermq.client.transaction import TransactionProducer
from ledgermq.remoting.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    Outcome,
    RemotingError,
    RequestTimeout,
    ResponseError,
)
from ledgermq.remoting.protocol.message import MessageExt

__all__ = [
    "AdminClient",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateNearby",
    "Attempt",
    "BatchFailed",
    "BrokerPlace",
    "ClientConfig",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeOptions",
    "ConsumeStatus",
    "ConsumerObserver",
    "Consuming",
    "Decided",
    "GroupConnections",
    "HalfMessage",
    "Hook",
    "InvalidMessage",
    "LitePullConsumer",
    "LitePullOptions",
    "Member",
    "Message",
    "MessageExt",
    "MessageFinder",
    "MessageModel",
    "MessageQueue",
    "NameServersUnreachable",
    "NoOffset",
    "NoReply",
    "NoRoute",
    "NotJoined",
    "NotRunning",
    "NotTaken",
    "OffsetsUnusable",
    "Outcome",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueProgress",
    "QueueSelector",
    "QueueStats",
    "RemotingError",
    "RequestTimeout",
    "ResponseError",
    "SelectorFailed",
    "SendFailed",
    "SendKind",
    "SendResult",
    "SendStatus",
    "Sending",
    "Sql92",
    "StrategyFailed",
    "TooManyPending",
    "TransactionListener",
    "TransactionOptions",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "Unfinished",
    "allocate_averagely",
    "allocate_by_circle",
    "select_by_hash",
    "select_by_random",
    "split_batch",
]
