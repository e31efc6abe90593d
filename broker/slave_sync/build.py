"""Builds what keeps the tables of a slave as its master's are."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from broker.delays.progress import DelayProgress
from broker.slave_sync.changes import SlaveTables
from broker.slave_sync.service import NOBODY, SlaveSync

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core import Core
    from broker.slave_sync.changes import Change
    from broker.slave_sync.giving_back import MasterClient
    from store.message_store import MessageStore


class _Log:
    """The log of a store, in its two ends."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def end(self) -> int:
        """Where it ends."""
        return self._store.reader.log_range()[1]

    @property
    def applied(self) -> int:
        """Up to where it is dispatched."""
        return self._store.applied


def build_slave_sync(
    core: Core,
    client: MasterClient,
    master: Callable[[], str],
    on_applied: Callable[[str], None],
    why_none: Callable[[], str] = lambda: NOBODY,
) -> SlaveSync:
    """Return what follows the tables of the broker at ``master()``, see `SlaveSync`.

    ``on_applied`` is told the kind of each change; ``why_none`` says why there is no master.
    """
    tables = core.tables
    assert tables.own_offsets is not None, "a slave has such a table"
    delays = cast("DelayProgress", tables.state.tables[DelayProgress.file])

    def apply(change: Change) -> None:
        kind, payload = change
        tables.state.apply(core.store.applied, kind, payload)
        on_applied(kind)

    return SlaveSync(
        client,
        core.clock,
        _Log(core.store),
        SlaveTables(tables.topics, tables.groups, tables.offsets, delays),
        tables.own_offsets,
        master=master,
        apply=apply,
        why_none=why_none,
    )
