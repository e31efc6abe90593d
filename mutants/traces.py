"""Planted bugs of hooks and message traces.

Sources: RocketMQ DefaultMQProducerImpl.executeSendMessageHookBefore, AsyncTraceDispatcher 4.9.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

TRACES: Final = (
    Mutant(
        name="client-hook-fails-the-send",
        breaks="What a hook raises is raised by the send.",
        source="executeSendMessageHookBefore: a Throwable of a hook is logged.",
        plant=patch(
            "ledgermq.client.hooks:Hooks._tell",
            ("except Exception:", "except ZeroDivisionError:"),
        ),
    ),
    Mutant(
        name="client-traces-without-end",
        breaks="Traces that nobody takes fill the memory of the client.",
        source="AsyncTraceDispatcher: the queue has 1,024 places, more is discarded.",
        plant=patch(
            "ledgermq.client.trace:Tracing._add",
            ("len(self._waiting) >= TRACES_WAITING_MAX", "False"),
        ),
    ),
    Mutant(
        name="client-trace-not-found-by-its-message",
        breaks="The message that holds a trace does not have the traced message among its keys.",
        source="AsyncTraceDispatcher.flushData: keys of a trace are ids and keys of messages.",
        plant=patch(
            "ledgermq.client.trace_codec:_found_by",
            ("return (msg_id, keys) if keys else (msg_id,)", "return (keys or msg_id,)"),
        ),
    ),
)
