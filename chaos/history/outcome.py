"""What the end of an operation proves: the table {code, definite, reason} and how to use it.

An operation ends ``ok``, ``fail`` (it definitely did not and will not happen) or ``info`` (it may
have happened, may still happen, or never will). Only a refusal that is known to come before the
append is ``fail``; everything unforeseen is ``info``. Histories keep the raw codes, so a wrong row
here is repaired by checking again, not by running again.

Source: spec/proof.md 1 (rule), spec/wire.md 2.2, 3.3 (RocketMQ response codes and when they arise).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """How an operation ended, as the ``outcome`` columns spell it."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
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

# Nothing was appended and nothing will be.
_DEFINITE: Final = {
    NOT_CONNECTED: "connection refused or not made: no byte was sent",
    INVALID_LOCALLY: "refused by the client library before sending",
    NO_ROUTE: "no broker to send to was known",
    3: "REQUEST_CODE_NOT_SUPPORTED",
    13: "MESSAGE_ILLEGAL",
    14: "SERVICE_NOT_AVAILABLE: not leader or not writable, before the append",
    15: "VERSION_NOT_SUPPORTED",
    16: "NO_PERMISSION",
    17: "TOPIC_NOT_EXIST",
    26: "SUBSCRIPTION_GROUP_NOT_EXIST",
    29: "INVALID_PARAMETER",
    204: "NO_BUYER_ID",
    205: "NOT_IN_CURRENT_UNIT",
    215: "FLOW_CONTROL: refused before the append",
}
# It may have happened.
_INDEFINITE: Final = {
    TIMED_OUT: "no answer in time after the first byte",
    CONNECTION_LOST: "reset or end of stream after sending",
    CLIENT_CRASHED: "the client died with the operation in flight",
    UNFORESEEN: "an exception that has no row",
    1: "SYSTEM_ERROR: step-down while pending, quorum wait, handler exception",
    2: "SYSTEM_BUSY: RocketMQ answers a quorum timeout with the same code",
    10: "FLUSH_DISK_TIMEOUT: stored, durability not confirmed",
    11: "SLAVE_NOT_AVAILABLE: stored here only",
    12: "FLUSH_SLAVE_TIMEOUT: stored here, copy not confirmed",
}
CODES: Final[dict[int, CodeMeaning]] = {
    code: CodeMeaning(code=code, definite=definite, reason=reason)
    for definite, rows in ((True, _DEFINITE), (False, _INDEFINITE))
    for code, reason in rows.items()
}

UNKNOWN_REMARK: Final = "outcome unknown"
# Refusals under a code that is not definite by itself, told apart by the words of the remark.
DEFINITE_REMARKS: Final = ("[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]", "[REJECTREQUEST]")

assert len(CODES) == len(_DEFINITE) + len(_INDEFINITE), "each code has one row"


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
