"""What the end of an operation proves: the table {code, definite, reason} and how to use it.

An operation ends ``ok``, ``fail`` (it definitely did not and will not happen) or ``info`` (it may
have happened, may still happen, or never will). Only a refusal that is known to come before the
append is ``fail``; everything unforeseen is ``info``. Histories keep the raw codes, so a wrong row
here is mended by checking again, not by running again.

Source: chaos.md 1.3 (rule), protocol.md 2.2, 3.3 (RocketMQ response codes and when they arise).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """How an operation ended, as the ``outcome`` columns spell it."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """One row of the table: ``definite`` says that nothing was and nothing will be appended."""

    code: int
    definite: bool
    reason: str


# Negative codes are the client's own observations, positive ones are RocketMQ response codes.
NOT_CONNECTED: Final = -1
TIMED_OUT: Final = -2
CONNECTION_LOST: Final = -3
INVALID_LOCALLY: Final = -4
NO_ROUTE: Final = -5
CLIENT_CRASHED: Final = -6
UNFORESEEN: Final = -7

_ROWS: Final = (
    CodeMeaning(NOT_CONNECTED, True, "connection refused or not made: no byte was sent"),
    CodeMeaning(TIMED_OUT, False, "no answer in time after the first byte"),
    CodeMeaning(CONNECTION_LOST, False, "reset or end of stream after sending"),
    CodeMeaning(INVALID_LOCALLY, True, "refused by the client library before sending"),
    CodeMeaning(NO_ROUTE, True, "no broker to send to was known"),
    CodeMeaning(CLIENT_CRASHED, False, "the client died with the operation in flight"),
    CodeMeaning(UNFORESEEN, False, "an exception that has no row"),
    CodeMeaning(1, False, "SYSTEM_ERROR: step-down while pending, quorum wait, handler exception"),
    CodeMeaning(2, False, "SYSTEM_BUSY: RocketMQ answers a quorum timeout with the same code"),
    CodeMeaning(3, True, "REQUEST_CODE_NOT_SUPPORTED"),
    CodeMeaning(10, False, "FLUSH_DISK_TIMEOUT: stored, durability not confirmed"),
    CodeMeaning(11, False, "SLAVE_NOT_AVAILABLE: stored here only"),
    CodeMeaning(12, False, "FLUSH_SLAVE_TIMEOUT: stored here, copy not confirmed"),
    CodeMeaning(13, True, "MESSAGE_ILLEGAL"),
    CodeMeaning(14, True, "SERVICE_NOT_AVAILABLE: not leader or not writable, before the append"),
    CodeMeaning(15, True, "VERSION_NOT_SUPPORTED"),
    CodeMeaning(16, True, "NO_PERMISSION"),
    CodeMeaning(17, True, "TOPIC_NOT_EXIST"),
    CodeMeaning(26, True, "SUBSCRIPTION_GROUP_NOT_EXIST"),
    CodeMeaning(29, True, "INVALID_PARAMETER"),
    CodeMeaning(204, True, "NO_BUYER_ID"),
    CodeMeaning(205, True, "NOT_IN_CURRENT_UNIT"),
    CodeMeaning(215, True, "FLOW_CONTROL: refused before the append"),
)
CODES: Final[dict[int, CodeMeaning]] = {row.code: row for row in _ROWS}

UNKNOWN_REMARK: Final = "outcome unknown"
# Refusals under a code that is not definite by itself, told apart by the words of the remark.
DEFINITE_REMARKS: Final = ("[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]", "[REJECTREQUEST]")

assert len(CODES) == len(_ROWS), "each code has one row"


def is_definite(code: int, remark: str | None = None) -> bool:
    """Return whether an error with this code and remark proves that nothing was appended."""
    text = remark or ""
    if UNKNOWN_REMARK in text:
        return False
    if any(mark in text for mark in DEFINITE_REMARKS):
        return True
    row = CODES.get(code)
    return row is not None and row.definite


def classify(code: int | None, remark: str | None = None) -> Outcome:
    """Return the outcome of one attempt; ``code`` 0 is success, None is no completion at all."""
    if code == 0:
        return Outcome.OK
    if code is not None and is_definite(code, remark):
        return Outcome.FAIL
    return Outcome.INFO


def combine(attempts: list[Outcome]) -> Outcome:
    """Return the outcome of an operation made of ``attempts``, the last being the answer given.

    A success is a success whatever came before; otherwise one unknown attempt makes it unknown.
    """
    if not attempts or attempts[-1] is Outcome.OK:
        return Outcome.OK if attempts else Outcome.INFO
    return Outcome.INFO if Outcome.INFO in attempts else Outcome.FAIL
