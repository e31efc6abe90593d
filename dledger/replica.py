"""The parts of a replica that exist without an event loop: its directory, opened, and its core."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger.codec.entry import HEADER_BYTES, decode_header, encode_span
from dledger.codec.properties import Identity
from dledger.config import DLedgerConfig
from dledger.core.configuration import ConfigEntry
from dledger.core.log import RaftLog
from dledger.core.model import LogIndex, NoopBuilder, Span, Term
from dledger.core.raft import Raft
from dledger.core.snapshot import SNAPSHOT_CHUNK_BYTES
from dledger.core.state import RaftConfig
from dledger.segments.row import Segments
from dledger.storage.files import open_segments
from dledger.storage.log_store import LogStore
from dledger.storage.membership_file import MembershipFile
from dledger.storage.recovery import open_log_store
from dledger.storage.snapshot_files import SnapshotFiles
from dledger.storage.state_files import CheckpointFile, HardStateFile, claim_directory
from ledgermq.runtime.disk import Closeable, Disk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.rng import Rng

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Replica:
    """An opened directory, and the core that starts from it."""

    identity: Identity
    lock: Closeable
    store: LogStore
    raft: Raft
    hard_state_file: HardStateFile
    checkpoint_file: CheckpointFile
    membership_file: MembershipFile
    commit_index: LogIndex
    """What the checkpoint says; every entry up to there may be applied."""

    def close(self) -> None:
        """Close the files and give the directory back."""
        self.store.close()
        self.checkpoint_file.close()
        self.lock.close()


def open_replica(config: DLedgerConfig, disk: Disk, rng: Rng, make_noop: NoopBuilder) -> Replica:
    """Claim the directory, recover the log, start a core. Errors: `FatalError`."""
    try:
        return _open(config, disk, rng, make_noop)
    except OSError as error:
        message = f"{config.directory} cannot be opened: {error}"
        raise FatalError(message, EXIT_ENVIRONMENT) from error


def _open(config: DLedgerConfig, disk: Disk, rng: Rng, make_noop: NoopBuilder) -> Replica:
    identity, lock = claim_directory(
        disk, config.directory, group=config.group, self_id=config.self_id, rng=rng
    )
    try:
        return _open_claimed(config, disk, rng, make_noop, identity, lock)
    except BaseException:
        lock.close()
        raise


def _open_claimed(
    config: DLedgerConfig,
    disk: Disk,
    rng: Rng,
    make_noop: NoopBuilder,
    identity: Identity,
    lock: Closeable,
) -> Replica:
    directory = config.directory
    data = open_segments(disk, f"{directory}/data", config.data_segment_bytes)
    index = open_segments(disk, f"{directory}/index", config.index_segment_bytes)
    checkpoint_file = CheckpointFile(disk, directory)
    checkpoint = checkpoint_file.load()
    hard_state_file = HardStateFile(disk, directory)
    snapshots = SnapshotFiles(disk, directory, config.data_segment_bytes)
    stands_before = snapshots.load()
    if stands_before is None and not identity.adopted and _lacks_its_beginning(data):
        raise FatalError(
            f"{data.path(data.start)} offset 0: the log begins here, and no snapshot stands for"
            " what was before: the segments before it, or the file snapshot, are missing"
        )
    is_new = stands_before is None and data.is_empty
    hard_state = hard_state_file.load(log_is_empty=is_new)
    store = open_log_store(
        data, index, checkpoint, hard_state.term, config.recovery_bytes, snapshots
    )
    store.before_cut, store.on_synced = checkpoint_file.lower, checkpoint_file.mark
    commit_index = max(checkpoint.committed_index, store.first_index - 1)
    membership_file = MembershipFile(disk, directory)
    raft = Raft(
        _core_config(config, identity, membership_file.load(store)),
        log=RaftLog(store, commit_index),
        hard_state=hard_state,
        rng=rng,
        make_noop=make_noop,
    )
    _log.info(
        "event=opened node=%s group=%s term=%d first_index=%d last_index=%d commit_index=%d",
        config.self_id, config.group, hard_state.term, store.first_index, store.last_index,
        commit_index,
    )  # fmt: skip
    return Replica(
        identity=identity,
        lock=lock,
        store=store,
        raft=raft,
        hard_state_file=hard_state_file,
        checkpoint_file=checkpoint_file,
        membership_file=membership_file,
        commit_index=commit_index,
    )


def _lacks_its_beginning(data: Segments) -> bool:
    """Tell whether the first segment begins with another entry than the first of all.

    That may lie behind 0: behind the log that RocketMQ had before it had DLedger's.
    """
    view = data.segment_view(data.start)
    return view is not None and data.start > 0 and decode_header(view).entry_index > 0


def _core_config(
    config: DLedgerConfig, identity: Identity, configurations: tuple[ConfigEntry, ...]
) -> RaftConfig:
    return RaftConfig(
        self_id=config.self_id,
        voters=config.voters,
        addresses=config.peers,
        configurations=configurations,
        generation=int(identity.store_id, 16),
        heartbeat_ticks=config.heartbeat_ticks,
        election_ticks_min=config.election_ticks_min,
        election_ticks_max=config.election_ticks_max,
        preferred_leader=config.preferred_leader,
        span_bytes_max=config.span_bytes_max,
        inflight_bytes_max=config.inflight_bytes_max,
        inflight_spans_max=config.inflight_spans_max,
        snapshot_chunk_bytes=SNAPSHOT_CHUNK_BYTES,
    )


def build_noop(
    make_body: Callable[[int], bytes],
    store: LogStore,
    index: LogIndex,
    term: Term,
    end_position: int,
) -> Span:
    """Return the entry that opens a term (see `NoopBuilder`); its body may name its position."""
    position, body = place_body(make_body, store, end_position)
    return encode_span(index, term, position, (body,))


def place_body(
    make_body: Callable[[int], bytes], store: LogStore, end_position: int
) -> tuple[int, bytes]:
    """Return where the next entry lies, and its body, made for that place."""
    body = make_body(end_position + HEADER_BYTES)
    position = store.place(end_position, len(body) + HEADER_BYTES)
    if position != end_position:
        body = make_body(position + HEADER_BYTES)
    return position, body
