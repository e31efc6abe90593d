"""What callers of a leader wait for besides commits: transfers of its leadership, and read indexes.

The core decides; here are the futures, and the errors they end with. Source: see
`dledger.core.transfer` and `dledger.core.read_index`.
"""

import asyncio
from collections.abc import Iterable

from dledger.core.leadership import Phase, Transfer
from dledger.core.model import LEADER, LogIndex, NodeId, Term
from dledger.core.raft import Raft
from dledger.core.ready import ReadConfirmed
from dledger.errors import DLedgerError, NotLeader, QuorumTimeout, TransferFailed
from ledgermq.runtime.cancel import timeout


class Leadership:
    """The waiting callers of one node."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self.known_transfer: Transfer | None = None
        """The transfer under way when `look` was last called."""
        self._transfer: tuple[Transfer, Term, asyncio.Future[None]] | None = None
        self._asked: dict[int, list[asyncio.Future[LogIndex]]] = {}
        self.confirmed: list[tuple[LogIndex, list[asyncio.Future[LogIndex]]]] = []
        """Reads that are confirmed and wait for the listener; see `release`."""

    def begin_transfer(self, target: NodeId) -> "asyncio.Future[None]":
        """Begin to hand over; the future ends when ``target`` leads. Errors: `TransferFailed`."""
        if self._transfer is not None:
            raise TransferFailed("a transfer is under way")
        transfer = self._raft.transfer(target)
        future = asyncio.get_running_loop().create_future()
        self._transfer = transfer, self._raft.state.term, future
        return future

    async def read_index(self, begin: "asyncio.Future[LogIndex]", timeout_ms: int) -> LogIndex:
        """Return what the future brings. Errors: `NotLeader`, `QuorumTimeout`."""
        try:
            async with timeout(timeout_ms / 1000):
                return await begin
        except TimeoutError as error:
            raise QuorumTimeout(timeout_ms) from error

    def begin_read(self) -> "asyncio.Future[LogIndex]":
        """Ask for a read; the future brings an index that the listener was told of."""
        future: asyncio.Future[LogIndex] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(self._raft.read_index(), []).append(future)
        return future

    def confirm(self, reads: Iterable[ReadConfirmed]) -> None:
        """Take what the core confirmed."""
        for read in reads:
            self.confirmed.append((read.index, self._asked.pop(read.batch, [])))

    def release(self, commit_index: LogIndex) -> None:
        """Answer the reads up to ``commit_index``: the listener was told of it."""
        if not self.confirmed:
            return
        waiting, self.confirmed = self.confirmed, []
        for index, futures in waiting:
            if index > commit_index:
                self.confirmed.append((index, futures))
                continue
            for future in futures:
                if not future.done():
                    future.set_result(index)

    def look(self) -> None:
        """See what the last input means for those who wait."""
        state = self._raft.state
        self.known_transfer = state.transfer
        if self._asked and state.role is not LEADER:
            self._fail_reads(NotLeader(state.leader_id))
        if self._transfer is None:
            return
        transfer, term, future = self._transfer
        failure = transfer.failure
        if transfer.phase is Phase.DONE:
            if state.leader_id == transfer.target:
                self._end_transfer(future, None)
            elif state.leader_id is not None and state.term > term:
                failure = f"{state.leader_id} leads now, not {transfer.target}"
            elif state.tick >= transfer.deadline_tick + state.config.election_ticks_max:
                failure = f"{transfer.target} was asked to campaign, and nobody leads yet"
        if failure:
            self._end_transfer(future, TransferFailed(failure))

    def stop(self) -> None:
        """Refuse everything that waits: this node ends."""
        self._fail_reads(NotLeader(None))
        if self._transfer is not None:
            self._end_transfer(self._transfer[2], TransferFailed("the node stops"))

    def _end_transfer(self, future: "asyncio.Future[None]", error: DLedgerError | None) -> None:
        self._transfer = None
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _fail_reads(self, error: DLedgerError) -> None:
        batches, self._asked = self._asked, {}
        for futures in batches.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
