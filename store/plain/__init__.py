"""RocketMQ's CommitLog as one broker writes it, without Raft."""

from store.plain.config import PlainLogConfig
from store.plain.log import PlainListener, PlainLog

__all__ = ["PlainListener", "PlainLog", "PlainLogConfig"]
