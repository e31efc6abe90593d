"""What applications import: ``from ledgermq import Message, Producer, PushConsumer``.

The asyncio client is in `ledgermq.client`, the protocol and its transport in `ledgermq.remoting`,
clock, disk and process entry in `ledgermq.runtime`. A name of the client is looked up when it is
first used: a broker, which needs the protocol only, does not load the client.
``ledgermq.sync`` has the same clients for programs without asyncio. Manual: docs/client.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgermq.client import *  # noqa: F403  # its __all__ is the list of what is public

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Return what the client exports under ``name``, or the installed version."""
        if name == "__version__":
            return import_module("importlib.metadata").version("ledgermq")
        if name == "sync":
            return import_module("ledgermq.sync")
        if name == "__all__":  # of ``from ledgermq import *``, which does load the client
            return list(import_module("ledgermq.client").__all__)
        client = None if name.startswith("_") else import_module("ledgermq.client")
        if client is None or name not in client.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(client, name)

    def __dir__() -> list[str]:
        return [*globals(), *import_module("ledgermq.client").__all__, "__version__"]
