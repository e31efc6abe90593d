"""What can go wrong between two peers, and what it means for the request that was under way.

Each class says whether another attempt makes sense (`retriable`) and what is known of the request
(`outcome`): FAILED means that it certainly had no effect, UNKNOWN that it may have had one. The
chaos client maps FAILED to `fail` and everything else to `info`.

Source: response codes of RocketMQ's ResponseCode and RemotingSysResponseCode; which of them a
producer retries: DefaultMQProducer.retryResponseCodes.
"""

# ruff: noqa: N818 - the names say what happened; every one of them is an Error by its base.

import re
from enum import Enum
from typing import ClassVar, Final

from ledgermq.remoting.protocol.codes import ResponseCode, name_of_response

OUTCOME_UNKNOWN_REMARK: Final = "outcome unknown"
"""A broker puts these words into the remark of an error whose message may yet be committed."""
_ILLEGAL_QUEUE: Final = re.compile(r"(request )?queueId\[-?\d+\] is illegal")


class Outcome(Enum):
    """What is known of a request that ended in an error."""

    FAILED = "failed"
    UNKNOWN = "unknown"


class RemotingError(Exception):
    """Root of all errors between two peers."""

    retriable: bool = False
    outcome: Outcome = Outcome.UNKNOWN


class ProtocolError(RemotingError):
    """Somebody broke the protocol; the leaves say who."""


class LocalProtocolError(ProtocolError):
    """We were asked to encode what the protocol cannot express. Nothing was sent."""

    outcome = Outcome.FAILED


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are no frame, header, body or record. The connection is closed."""


class InvalidHeader(ProtocolError):
    """A well-formed request lacks a field or has a wrong value: answered with code 1."""

    outcome = Outcome.FAILED


class ConnectFailed(RemotingError):
    """No connection could be made, so nothing was sent."""

    retriable = True
    outcome = Outcome.FAILED


class ConnectionLost(RemotingError):
    """The connection broke after the request was handed to it and before its answer."""

    retriable = True


class RequestTimeout(RemotingError):
    """No answer within the time allowed."""

    retriable = True


class ResponseError(RemotingError):
    """The peer answered with a code other than 0."""

    code: int = ResponseCode.SYSTEM_ERROR
    by_code: ClassVar[dict[int, type["ResponseError"]]] = {}

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
        if remark is not None and OUTCOME_UNKNOWN_REMARK in remark:
            self.outcome = Outcome.UNKNOWN

    def __str__(self) -> str:
        return f"code {self.code} {name_of_response(self.code)}: {self.remark or 'no remark'}"

    def __init_subclass__(cls) -> None:
        cls.by_code[cls.code] = cls


def for_code(code: int, remark: str | None) -> ResponseError:
    """Return the error of the subclass that stands for ``code``; `ResponseError` if none does."""
    return ResponseError.by_code.get(code, ResponseError)(code, remark)


class SystemFailure(ResponseError):
    """1: anything, from a bad argument to an exception half-way, so the outcome is unknown.

    A queue that there is not is refused before anything is stored, with the same words as ever.
    """

    code = ResponseCode.SYSTEM_ERROR
    retriable = True

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(code, remark)
        if remark is not None and _ILLEGAL_QUEUE.match(remark):
            self.outcome = Outcome.FAILED


class SystemBusy(ResponseError):
    """2: back-pressure; the broker did not take the request."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True
    outcome = Outcome.FAILED


class RequestCodeNotSupported(ResponseError):
    """3: nobody serves this request code."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    outcome = Outcome.FAILED


class FlushDiskTimeout(ResponseError):
    """10: stored, but not yet known to be on disk."""

    code = ResponseCode.FLUSH_DISK_TIMEOUT


class SlaveNotAvailable(ResponseError):
    """11: stored, but there is no slave."""

    code = ResponseCode.SLAVE_NOT_AVAILABLE


class FlushSlaveTimeout(ResponseError):
    """12: stored, but no slave has confirmed it yet."""

    code = ResponseCode.FLUSH_SLAVE_TIMEOUT


class MessageIllegal(ResponseError):
    """13: the message is too large or malformed."""

    code = ResponseCode.MESSAGE_ILLEGAL
    outcome = Outcome.FAILED


class ServiceNotAvailable(ResponseError):
    """14: not the leader, a slave, a full disk, or shutting down; nothing was stored."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True
    outcome = Outcome.FAILED


class NoPermission(ResponseError):
    """16: the broker, topic or group does not allow it."""

    code = ResponseCode.NO_PERMISSION
    retriable = True
    outcome = Outcome.FAILED


class TopicNotExist(ResponseError):
    """17: no such topic, or no route to it."""

    code = ResponseCode.TOPIC_NOT_EXIST
    retriable = True
    outcome = Outcome.FAILED


class PullNotFound(ResponseError):
    """19: no message at this offset yet."""

    code = ResponseCode.PULL_NOT_FOUND
    retriable = True
    outcome = Outcome.FAILED


class PullRetryImmediately(ResponseError):
    """20: all messages scanned were filtered out; go on from the next offset."""

    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    retriable = True
    outcome = Outcome.FAILED


class PullOffsetMoved(ResponseError):
    """21: the offset is outside the queue."""

    code = ResponseCode.PULL_OFFSET_MOVED
    outcome = Outcome.FAILED


class QueryNotFound(ResponseError):
    """22: nothing is stored under this key."""

    code = ResponseCode.QUERY_NOT_FOUND
    outcome = Outcome.FAILED


class SubscriptionParseFailed(ResponseError):
    """23: the expression of the subscription cannot be parsed."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    outcome = Outcome.FAILED


class SubscriptionNotExist(ResponseError):
    """24: the group has not sent a heartbeat with this topic yet."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    retriable = True
    outcome = Outcome.FAILED


class SubscriptionNotLatest(ResponseError):
    """25: the broker knows an older subscription than the request names."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    retriable = True
    outcome = Outcome.FAILED


class SubscriptionGroupNotExist(ResponseError):
    """26: no such consumer group."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    outcome = Outcome.FAILED


class ConsumerNotOnline(ResponseError):
    """206: no member of the group is connected."""

    code = ResponseCode.CONSUMER_NOT_ONLINE
    outcome = Outcome.FAILED
