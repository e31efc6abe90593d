"""Errors of the client, with the flags that the remoting errors have.

``outcome`` says what is known about the request: FAILED means that it certainly did not take
effect, UNKNOWN that it may have, now or later (chaos design 1.3).
"""

# ruff: noqa: N818 - the names say what happened; every one of them is an Error by its base.

from ledgermq.client.message import Attempt
from ledgermq.remoting.protocol.errors import Outcome, RemotingError


class ClientError(RemotingError):
    """Base of the errors that arise in the client itself: nothing was sent."""

    outcome = Outcome.FAILED


class InvalidMessage(ClientError):
    """The message, topic or group breaks a limit; sending it again cannot help."""


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


class TooManyPending(ClientError):
    """More sends await an answer than ``max_pending_sends`` allows."""

    retriable = True


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
