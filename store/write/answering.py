"""Telling who waits for a put how it ended, from the midst of dispatching.

What an answer raises concerns one request: it is told with its trace, and dispatching goes on. The
log's own work around it stays unguarded, so that a bug there ends the process.
"""

from typing import TYPE_CHECKING, Final

from ledgermq.runtime.tasks import report_serving_failure
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.results import BatchCallback, PutBatch, PutCallback, PutMessage

ANSWERING: Final = "the answer to a put"


def tell(done: "Callable[..., object]", *result: object) -> None:
    """Call ``done``, which must not raise, and survive it if it does."""
    try:
        done(*result)
    except Exception as error:  # noqa: BLE001 - one request's failure, not the log's
        report_serving_failure(ANSWERING, error)


def refuse(_message: "PutMessage", done: "PutCallback") -> None:
    """Answer one message DISK_FULL."""
    done(PutStatus.DISK_FULL, -1, -1)


def refuse_batch(_batch: "PutBatch", done: "BatchCallback") -> None:
    """Answer a batch DISK_FULL."""
    done(PutStatus.DISK_FULL, -1, [])


def refuse_each(_batch: "PutBatch", dones: "Sequence[PutCallback]") -> None:
    """Answer each message of a batch DISK_FULL."""
    for done in dones:
        done(PutStatus.DISK_FULL, -1, -1)
