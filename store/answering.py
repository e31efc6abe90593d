"""Telling who waits for a put how it ended, from the midst of dispatching.

What an answer raises concerns one request: it is told with its trace, and dispatching goes on. The
log's own work around it stays unguarded, so that a bug there ends the process.
"""

from typing import TYPE_CHECKING, Final

from runtime.tasks import report_serving_failure

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWERING: Final = "the answer to a put"


def tell(done: "Callable[..., object]", *result: object) -> None:
    """Call ``done``, which must not raise, and survive it if it does."""
    try:
        done(*result)
    except Exception as error:  # noqa: BLE001 - one request's failure, not the log's
        report_serving_failure(ANSWERING, error)
