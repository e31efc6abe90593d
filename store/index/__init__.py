"""RocketMQ's index of keys: which messages may have a key, by the hash of it."""

from store.index.keeper import IndexKeeper
from store.index.search import Span, search

__all__ = ["IndexKeeper", "Span", "search"]
