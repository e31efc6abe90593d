"""Settings of message traces, under RocketMQ's names."""

from __future__ import annotations

from dataclasses import dataclass

from broker.access_settings import AccessSettings
from ledgermq.runtime.config import key


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings(AccessSettings):
    """Whether clients that can trace are to, and where to."""

    trace_on: bool = key("traceOn", default=True)
    """Told with the answer to each send and reply: with false clients trace none of them."""
    trace_topic_enable: bool = key("traceTopicEnable", default=False)
    msg_trace_topic_name: str = key("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC")
    """The topic for traces, where there is one."""
