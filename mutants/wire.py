"""Planted bugs of the wire: what one request, connection or address may do to all others.

Sources: the fair shares of docs/security.md. A test plants each and sees the hole open.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

WIRE: Final = (
    Mutant(
        name="assertion-ends-the-process",
        breaks="A request that hits a broken assertion in its handler ends the process.",
        source="One request never ends a process.",
        plant=patch(
            "remoting.transport.dispatch:RequestDispatcher._answer_error",
            ("isinstance(error, FatalError)", "isinstance(error, (FatalError, AssertionError))"),
            ("error.message, error", "str(error), FatalError(str(error))"),
        ),
    ),
    Mutant(
        name="served-coroutine-is-supervised",
        breaks="A coroutine that serves one request ends the process by what it raises.",
        source="One request never ends a process.",
        plant=patch(
            "runtime.tasks:Supervisor._on_served",
            ("self.stopping or not isinstance(error, Exception)", "error is not None"),
        ),
    ),
    Mutant(
        name="answer-breaks-dispatch",
        breaks="What the answer to one put raises ends the dispatching of all.",
        source="One request never ends a process.",
        plant=patch(
            "store.dispatch:Dispatcher._dispatch_own",
            ("report_serving_failure(ANSWERING, error)", "raise error"),
        ),
    ),
    Mutant(
        name="invariant-of-the-log-is-answered",
        breaks="A broken invariant of a put is answered, and the log goes on.",
        source="Assertions of log and store protect the data: they stay fatal.",
        plant=patch(
            "store.message_store:MessageStore.attach",
            ("invariants_are_fatal(self._commit_log.put)", "self._commit_log.put"),
        ),
    ),
    Mutant(
        name="references-double",
        breaks="What references of a JSON text expand to is not measured.",
        source="Work is bounded for each request: 2.6 KB became 850 MB.",
        plant=patch(
            "remoting.protocol.tolerant_json:_Reader.read_all",
            ("if self._references:", "if False:"),
        ),
    ),
    Mutant(
        name="slow-reader-without-end",
        breaks="The slow reader of JSON reads any number of values.",
        source="No request holds the loop for longer than 20 ms: 16 MB took 19 s.",
        plant=patch("remoting.protocol.tolerant_json:_Reader._spend", ("self._left < 0", "False")),
    ),
    Mutant(
        name="large-headers-are-read",
        breaks="A header of any size is decoded.",
        source="No request holds the loop for longer than 20 ms.",
        plant=patch(
            "remoting.transport.dispatch:RequestDispatcher.on_frame",
            ("len(frame.header) > HEADER_BYTES_MAX", "False"),
        ),
    ),
)
