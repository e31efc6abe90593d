"""Errors of the client, with the flags that the remoting errors have.

``outcome`` says what is known about the request: FAILED means that it certainly did not take
effect, UNKNOWN that it may have, now or later (chaos design 1.3).
"""

# ruff: noqa: N818 - the names say what happened; every one of them is an Error by its base.

from ledgermq.client.message import Attempt, Message, SendResult
from ledgermq.remoting.protocol.errors import Outcome, RemotingError


class ClientError(RemotingError):
    """Base of the errors that arise in the client itself: nothing was sent."""

    outcome = Outcome.FAILED


class InvalidMessage(ClientError):
    """The message, topic or group breaks a limit; sending it again cannot help."""


class SelectorFailed(ClientError):
    """A queue selector raised, or chose what is no queue of the topic."""


class StrategyFailed(ClientError):
    """A rebalance strategy raised, or returned what cannot be a share of the queues."""


class OffsetsUnusable(ClientError):
    """The folder of a broadcasting consumer's offsets is in use, or cannot be used."""


class NoOffset(ClientError):
    """A group has no offset in a topic, so that there is nothing to be moved."""


class NotTaken(ClientError):
    """Queues of a topic that are a member's share could not be had for a while."""

    retriable = True

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"queues of topic {topic} are not had: another member holds them or their locks, or"
            " their offsets cannot be read"
        )


class Unfinished(ClientError):
    """A queue is not pulled further, since the listener does not finish what it has of it."""

    retriable = True


class NotRunning(ClientError):
    """The client was not started, or was stopped.

    ``outcome`` is UNKNOWN if it was stopped while a request was under way that may have had its
    effect.
    """

    def __init__(self, message: str, outcome: Outcome = Outcome.FAILED) -> None:
        super().__init__(message)
        self.outcome = outcome


class NoRoute(ClientError):
    """No name server knows the topic or none of its brokers has a leader."""

    retriable = True


class NameServersUnreachable(ClientError):
    """None of the name servers answered."""

    retriable = True


class NotJoined(ClientError):
    """A consumer had no share of its topics in time, and nothing that blocks it is known."""

    retriable = True


class TooManyPending(ClientError):
    """More sends await an answer than ``max_pending_sends`` allows."""

    retriable = True


class NoReply(RemotingError):
    """Nobody replied to a request in time; it is stored, and may have been acted on."""

    outcome = Outcome.UNKNOWN

    def __init__(self, topic: str, correlation_id: str, waited_ms: int) -> None:
        super().__init__(f"{topic}: no reply to the request {correlation_id} in {waited_ms} ms")
        self.correlation_id = correlation_id


class SendFailed(RemotingError):
    """A send was given up; ``attempts`` tells what was tried.

    ``outcome`` is FAILED only if every attempt certainly failed; otherwise UNKNOWN: the message
    may be stored, once or more often. The cause is the error of the last attempt.
    """

    def __init__(self, message: str, attempts: tuple[Attempt, ...]) -> None:
        super().__init__(message)
        self.attempts = attempts
        unknown = any(attempt.outcome is Outcome.UNKNOWN for attempt in attempts)
        self.outcome = Outcome.UNKNOWN if unknown else Outcome.FAILED


class BatchFailed(SendFailed):
    """A batch that is not the first was given up; ``outcome`` is what is known of ``messages``.

    ``results`` are those of the batches before it, which are stored. The ``unsent`` messages behind
    it are certainly not: nobody tried to send them.
    """

    def __init__(
        self,
        cause: RemotingError,
        results: tuple[SendResult, ...],
        messages: tuple[Message, ...],
        unsent: int,
    ) -> None:
        super().__init__(
            f"{cause}; {len(results)} batches before it are stored, {unsent} messages are not sent",
            cause.attempts if isinstance(cause, SendFailed) else (),
        )
        self.outcome = cause.outcome
        self.results = results
        self.messages = messages
        self.unsent = unsent
