"""PySyncObj as the controllers' Raft: its elections and its log, over a journal and links of ours.

What is changed, and why (all of it read in PySyncObj 0.3.17):

- the journal is `SyncedJournal`: nothing is said that the disk does not have;
- messages go over `namesrv.controller.links`, typed and bounded: nothing is unpickled;
- an answer of an earlier term is dropped: PySyncObj's name no term, and it would count them;
- a message of a term that no peer can have reached is dropped, and so are entries in the place of
  committed ones, and the wish for an entry that cannot be: PySyncObj would fail over them;
- a leader's message that ends before what the same leader has sent is dropped: PySyncObj would cut
  the log there, though the rest has been confirmed;
- how far the leader has committed counts only in a message that compares the logs: PySyncObj would
  take a tail of its own for committed that the leader does not have;
- no election begins before a majority has said that it would vote (`namesrv.controller.prevote`);
- entries are never split over messages; a snapshot is sent whole and checked before it counts, and
  never takes the log back behind what was committed.

PySyncObj turns what fails in a callback into a log line; `Raft.failure` keeps it, and its owner
ends the process.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError
from namesrv.controller.commands import BadCommand, Outcome, decode_command
from namesrv.controller.journal import SyncedJournal, to_entry, to_raw
from namesrv.controller.limits import AHEAD_MAX, ENTRIES_MAX
from namesrv.controller.machine import Machine
from namesrv.controller.prevote import Poll
from namesrv.controller.snapshot import (
    BadSnapshot,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
)
from namesrv.controller.wire import (
    SNAPSHOT_BYTES_MAX,
    Append,
    AskPreVote,
    AskVote,
    Beat,
    Entry,
    GivePreVote,
    GiveVote,
    Install,
    Message,
    NextIndex,
)

_log: Final = logging.getLogger(__name__)

ELECTION_S: Final = (0.6, 1.2)
"""How long a follower hears nothing before it asks for votes, at least and at most."""
BEAT_S: Final = 0.05
FALLBACK_S: Final = 1.5
"""A leader that hears no majority for so long is none any more."""
_NEVER: Final = 10**9
_DUE: Final = 0
"""The time of an election that is due: what PySyncObj itself sets where a leader asks for one."""
_FIRST_INDEX: Final = 1
"""That of the no-op with which every log begins: nobody wants it."""
_NOT_COMPARED: Final = 0
"""The commit index of a message that says nothing of what is before it."""

Done = Callable[[Outcome | None, str], None]
"""Called with the outcome of a command, or with why there is none."""
_FAILURES: Final[Mapping[int, str]] = {
    FAIL_REASON.QUEUE_FULL: "too many commands wait",
    FAIL_REASON.MISSING_LEADER: "no controller leads",
    FAIL_REASON.DISCARDED: "another controller leads, and the command was not taken",
    FAIL_REASON.NOT_LEADER: "another controller leads",
    FAIL_REASON.LEADER_CHANGED: "another controller leads; the command may have been taken",
    FAIL_REASON.UNKNOWN_OUTCOME: "the command may have been taken",
}


def _journal_of(given: object) -> object:
    """Return the journal of a configuration: ours as it is; PySyncObj takes a path only."""
    return given if isinstance(given, SyncedJournal) else _create_journal(given)


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether a line of the library says anything of what came of it.

    It finds logs that may have diverged wherever entries come again that are applied already: after
    an election, or where a follower has asked twice. The journal ends the process if they are
    others (`namesrv.controller.journal`).
    """
    return "truncating already-applied log entries" not in record.getMessage()


_create_journal: Final = pysyncobj.syncobj.createJournal
pysyncobj.syncobj.createJournal = _journal_of
pysyncobj.syncobj.logger.addFilter(_is_news)


class Post(Protocol):
    """What carries messages to the other controllers."""

    def __call__(self, peer: str, message: Message) -> bool:
        """Send one; False if there is no connection."""
        ...


class Raft(SyncObj):  # type: ignore[misc]  # the library has no types
    """The replicated machine of one controller.

    Args:
        own: id of this controller.
        peers: ids of the others.
        directory: of its files, made and locked by the caller.
    """

    def __init__(
        self, own: str, peers: tuple[str, ...], disk: Disk, directory: str, post: Post
    ) -> None:
        self._disk = disk
        self.journal = SyncedJournal(disk, directory)
        self.machine = Machine()
        self.failure: Exception | None = None
        self.own = own
        self._nodes = {peer: Node(peer) for peer in peers}
        self._poll = Poll(1 + len(peers))
        self._post = post
        self._wire = _Wire(self, post)
        self._offered: tuple[str, int, Entry | None] = "", 0, None
        """Peer and term of the last snapshot that began to come, and its last entry."""
        self._warned = "", 0
        """Of whose entries in the place of committed ones was told last: peer and term."""
        dump = f"{directory}/dump"
        _copy(disk, self.journal.snapshot_path, dump)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=self.journal,
            fullDumpFile=dump,
            serializer=self._write_dump,
            deserializer=self._read_dump,
            useFork=False,
            commandsWaitLeader=False,
            commandsQueueSize=1024,
            raftMinTimeout=ELECTION_S[0],
            raftMaxTimeout=ELECTION_S[1],
            appendEntriesPeriod=BEAT_S,
            appendEntriesBatchSizeBytes=_NEVER,
            leaderFallbackTimeout=FALLBACK_S,
            logCompactionMinEntries=int(ENTRIES_MAX),
            logCompactionMinTime=_NEVER,
            logCompactionBatchSize=SNAPSHOT_BYTES_MAX,
        )
        super().__init__(
            Node(own), list(self._nodes.values()), conf, nodeClass=Node, transport=self._wire
        )
        self._term_max = self.term + AHEAD_MAX
        self._index_max = self.journal.last[0] + AHEAD_MAX
        """What a peer can have reached while this process runs: leaps on leaps go no further."""

    # What its owner does with it

    def turn(self) -> None:
        """Do what is due. Errors: those of the disk; `AssertionError` of the machine."""
        self._ask_first()
        self.doTick(0.0)
        self._put_off_what_did_not_begin()
        self._raise_failure()

    def receive(self, peer: str, message: Message) -> None:
        """Take what a peer has sent. Errors: as `turn`."""
        node = self._nodes.get(peer)
        if node is None or self._is_refused(peer, message):
            return
        if isinstance(message, AskPreVote | GivePreVote):
            self._catch_up_with_term(node, message.term)
        match message:
            case AskPreVote():
                if self._would_vote(message):
                    self._post(peer, GivePreVote(self.term, message.poll))
            case GivePreVote():
                if self._poll.take(peer, message.poll) and not self._isLeader():
                    self._SyncObj__raftElectionDeadline = _DUE
            case _:
                if isinstance(message, Append | Beat | Install) and message.term >= self.term:
                    self._poll.on_leader(_now_s())
                self._wire.deliver(node, message)
        self._raise_failure()

    def on_link(self, peer: str, *, is_up: bool) -> None:
        """Learn that messages reach a peer, or do not."""
        self._wire.tell(self._nodes[peer], is_up=is_up)

    def propose(self, payload: bytes, done: Done) -> None:
        """Have a command applied by all, if this controller leads."""

        def on_done(outcome: Outcome | None, reason: int) -> None:
            done(outcome, _FAILURES.get(reason, "") if outcome is None else "")

        if self._isLeader():
            self.apply_command(payload, callback=on_done)
        else:
            done(None, _FAILURES[FAIL_REASON.NOT_LEADER])

    @property
    def leader(self) -> str | None:
        """Who leads, as far as is known here."""
        node = self._getLeader()
        return None if node is None else str(node.id)

    @property
    def term(self) -> int:
        """The current term."""
        return int(self.raftCurrentTerm)

    @property
    def leads(self) -> bool:
        """Whether it leads, a majority is connected, and all that was decided before is applied."""
        committed = self.raftCommitIndex
        return bool(
            self._isLeader()
            and self.hasQuorum
            and self.raftLastApplied == committed
            and self.journal.term_of(committed) == self.term
        )

    @replicated  # type: ignore[untyped-decorator]  # the library has no types
    def apply_command(self, payload: bytes) -> Outcome:
        """Apply a command; all controllers do so in one order."""
        try:
            command = decode_command(payload)
        except BadCommand as error:
            raise FatalError(
                f"the log of this controller has a command that this build does not know ({error});"
                " start it with the build that wrote that, or a newer one"
            ) from error
        outcome = self.machine.apply(command)
        if outcome.changed and outcome.group is not None:
            group = outcome.group
            _log.info(
                "event=group_changed command=%s master=%d epoch=%d in_sync=%s in_sync_epoch=%d",
                payload.decode(), group.master, group.master_epoch,
                ",".join(map(str, group.in_sync)), group.in_sync_epoch,
            )  # fmt: skip
        return outcome

    # Before an election

    def _ask_first(self) -> None:
        """Ask the others where PySyncObj would begin an election now, and have it wait for them.

        It begins at the time that it keeps itself, which answers of a majority set.
        """
        due_s, now_s = self._SyncObj__raftElectionDeadline, _now_s()
        if self._isLeader() or due_s == _DUE or due_s >= now_s:
            return
        number = self._poll.begin()
        if self._poll.is_won:  # there is no other controller
            return
        self._SyncObj__raftElectionDeadline = now_s + self._SyncObj__generateRaftTimeout()
        for peer in self._nodes:
            self._post(peer, AskPreVote(self.term, number, *self.journal.last))

    def _put_off_what_did_not_begin(self) -> None:
        """Ask anew later: whoever would have voted may hear a leader once it is connected again."""
        due_s, now_s = self._SyncObj__raftElectionDeadline, _now_s()
        if due_s == _DUE:
            self._SyncObj__raftElectionDeadline = now_s + self._SyncObj__generateRaftTimeout()

    def _catch_up_with_term(self, node: Node, term: int) -> None:
        """Take the later term of a peer, as a leader, or where none is heard.

        It would hear no leader of an earlier one, nor vote in it, and begins no election itself
        while its log lacks something. The vote that stands for it here is for a log without
        anything, which nobody gives.
        """
        if term > self.term and (self._isLeader() or not self._hears_a_leader()):
            self._wire.deliver(node, AskVote(term, 0, 0))

    def _would_vote(self, message: AskPreVote) -> bool:
        """Tell whether a peer would get the vote: no leader is heard, and its log has all."""
        index, term = self.journal.last
        has_all = (message.last_term, message.last_index) >= (term, index)
        return has_all and not self._hears_a_leader()

    def _hears_a_leader(self) -> bool:
        return self._isLeader() or self._poll.hears_a_leader(_now_s())

    # What PySyncObj asks

    def _write_dump(self, path: str, data: tuple[Any, ...]) -> None:
        try:
            last, before, _ = data
            found = encode_snapshot(to_entry(before), to_entry(last), self.machine.groups)
            self._disk.replace(self.journal.snapshot_path, found)
            self._disk.replace(path, found)
        except Exception as error:
            self.failure = error
            raise

    def _read_dump(self, path: str) -> tuple[Any, ...]:
        try:
            data = self._disk.read(path)
            snapshot = decode_snapshot(data or b"")
            self._disk.replace(self.journal.snapshot_path, data or b"")
            self.machine = Machine(snapshot.groups)
            self.journal.setRaftCommitIndex(snapshot.last.index)
        except Exception as error:
            self.failure = error
            raise
        return to_raw(snapshot.last), to_raw(snapshot.before), ()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    # What must not reach PySyncObj

    def _is_refused(self, peer: str, message: Message) -> bool:
        if message.term > self._term_max:
            _log.warning("event=term_refused peer=%s term=%d own=%d", peer, message.term, self.term)
            return True
        if isinstance(message, NextIndex):
            is_known = _FIRST_INDEX < message.next_index <= self.journal.last[0] + 1
            return message.term != self.term or not is_known
        if isinstance(message, Append):
            if self._is_over_committed(message):
                self._warn_of_another_log(peer, message.term)
                return True
            index, term = self.journal.last
            return message.term == term and message.end < index
        return isinstance(message, Install) and not self._may_install(peer, message)

    def _is_over_committed(self, message: Append) -> bool:
        """Whether it would replace what is committed: no leader has anything else there.

        One of an earlier term may, and is none any more.
        """
        if message.term < self.term:
            return False
        told = [(message.prev_index, message.prev_term)]
        told += [(entry.index, entry.term) for entry in message.entries]
        return any(
            index <= self.raftCommitIndex and self.journal.term_of(index) not in {None, term}
            for index, term in told
        )

    def _warn_of_another_log(self, peer: str, term: int) -> None:
        if self._warned != (peer, term):
            self._warned = peer, term
            _log.warning(
                "event=append_refused peer=%s term=%d other entries are committed here; if that is"
                " its log, and not a forgery, the controller whose log is wrong has to start with"
                " another controllerStorePath", peer, term,
            )  # fmt: skip

    def _may_install(self, peer: str, message: Install) -> bool:
        """Whether a part of a snapshot is taken: the last one only behind a first one that was."""
        if message.is_first:
            self._offered = peer, message.term, _last_of(message.data)
        elif message.data:
            return False
        source, term, last = self._offered
        if (source, term) != (peer, message.term) or last is None:
            return False
        own = self.journal.last[0]
        if last.index > self._index_max:
            _log.warning("event=snapshot_refused peer=%s index=%d own=%d", peer, last.index, own)
            return False
        is_new = self.journal.term_of(last.index) != last.term
        return is_new and last.index > self.raftCommitIndex and last.term <= term


def _now_s() -> float:
    """Return the time by the clock of PySyncObj's elections."""
    return float(pysyncobj.syncobj.monotonicTime())


class _Wire(Transport):  # type: ignore[misc]  # the library has no types
    """PySyncObj's transport over messages of ours."""

    def __init__(self, raft: Raft, post: Post) -> None:
        super().__init__(raft, None, ())
        self._raft = raft
        self._post = post

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        """Send what PySyncObj says; nothing once something has failed."""
        found = from_library(message, self._raft.term)
        if found is None or self._raft.failure is not None:
            return False
        return self._post(str(node.id), found)

    def deliver(self, node: Node, message: Message) -> None:
        """Hand over what a peer has said."""
        self._onMessageReceived(node, to_library(message))

    def tell(self, node: Node, *, is_up: bool) -> None:
        """Hand over that a link has come up or gone."""
        if is_up:
            self._onNodeConnected(node)
        else:
            self._onNodeDisconnected(node)


def from_library(message: dict[str, Any], term: int) -> Message | None:
    """Return the message that PySyncObj's dictionary is, None for one that is not carried."""
    match message["type"]:
        case "request_vote":
            return AskVote(term, message["last_log_index"], message["last_log_term"])
        case "response_vote":
            return GiveVote(term)
        case "next_node_idx":
            return NextIndex(term, message["next_node_idx"], message["reset"], message["success"])
        case "append_entries" if "prevLogIdx" in message:
            assert "transmission" not in message, "entries are not split"
            entries = tuple(map(to_entry, message["entries"]))
            commit, index = message["commit_index"], message["prevLogIdx"]
            return Append(term, commit, index, message["prevLogTerm"], entries)
        case "append_entries" if message["serialized"]:
            return Install(term, message["commit_index"], *message["serialized"])
        case "append_entries":
            return Beat(term, message["commit_index"])
        case _:  # commands are proposed where the leader is, never passed on
            return None


def to_library(message: Message) -> dict[str, Any]:
    """Return PySyncObj's dictionary of a message."""
    match message:
        case AskVote(term, index, last_term):
            return {
                "type": "request_vote", "term": term, "last_log_index": index,
                "last_log_term": last_term,
            }  # fmt: skip
        case GiveVote(term):
            return {"type": "response_vote", "term": term}
        case NextIndex(_, index, reset, success):
            return {
                "type": "next_node_idx", "next_node_idx": index, "reset": reset, "success": success,
            }  # fmt: skip
        case Append(term, commit, index, prev_term, entries):
            return {
                "type": "append_entries", "term": term, "commit_index": commit,
                "prevLogIdx": index, "prevLogTerm": prev_term,
                "entries": list(map(to_raw, entries)),
            }  # fmt: skip
        case Install(term, _, data, is_first, is_last):
            serialized = (data, is_first, is_last)
            return {
                "type": "append_entries", "term": term, "commit_index": _NOT_COMPARED,
                "serialized": serialized,
            }  # fmt: skip
        case Beat(term, _):
            return {
                "type": "append_entries", "term": term, "commit_index": _NOT_COMPARED,
                "serialized": None,
            }  # fmt: skip
        case AskPreVote() | GivePreVote():
            raise AssertionError(f"{message} is not for the library")


def _last_of(data: bytes) -> Entry | None:
    """Return the last entry of a leader's snapshot, None if it is no snapshot."""
    try:
        return decode_snapshot(data).last
    except BadSnapshot as error:
        _log.warning("event=snapshot_refused reason=%r", str(error))
        return None


def _copy(disk: Disk, source: str, target: str) -> None:
    """Give PySyncObj the snapshot that counts in the place of what it left unsynced."""
    if read_snapshot(disk, source) is None:
        disk.remove(target)
    else:
        disk.replace(target, disk.read(source) or b"")
