"""Checks at start that change nothing: are the ports free, is the directory ours.

They run before anything is created or written, so that a wrong start leaves no trace.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from dledger.codec.properties import decode_identity
from dledger.storage.snapshot_files import NAME as SNAPSHOT
from ledgermq.remoting.protocol.hosts import parse_address
from ledgermq.runtime.errors import FatalError
from store.ha.switch.epochs import EPOCH_FILE
from store.recovery.known import check_log_is_there

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from ledgermq.runtime.disk import Disk

_PREFIX: Final = "dledger-"
_SEGMENT_NAME_CHARS: Final = 20
_ROCKSDB: Final = "CURRENT"
"""The file that says which others of a RocksDB count; a topic of that name has a directory."""
_ROCKSDB_TABLES: Final = ("topics", "subscriptionGroups", "consumerOffsets", "rdb", "metadata")
"""Where RocketMQ 5 keeps tables below ``config``, with a RocksDB in each of these."""
_BATCH_QUEUES: Final = "batchconsumequeue"


async def check_port_free(key: str, host: str, port: int) -> None:
    """Find out whether ``host:port`` can be listened on; nobody can connect to it meanwhile.

    A client that did would have a connection which outlives the look, and on which nobody answers.

    Raises:
        FatalError: it cannot; the message names key, host and port.
    """
    loop = asyncio.get_running_loop()
    try:
        probe = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        why = "is in use by another process" if in_use else str(error)
        raise FatalError(f"{key}: {host}:{port} {why}") from error
    probe.close()
    await probe.wait_closed()


async def check_peer_port_free(address: str) -> None:
    """As `check_port_free` for the own entry of dLegerPeers; "" needs no port."""
    if address:
        host, port = parse_address(address)
        await check_port_free("dLegerPeers", host, port)


def check_directory(disk: Disk, store_path: str, self_id: str) -> None:
    """Find out whether a store directory belongs to another replica.

    Raises:
        FatalError: it holds the log of another replica.
    """
    try:
        names = disk.names(store_path)
    except OSError as error:
        raise FatalError(f"storePathRootDir={store_path}: {error}") from error
    logs = [name for name in names if name.startswith(_PREFIX)]
    if logs and _PREFIX + self_id not in logs:
        owner = logs[0].removeprefix(_PREFIX)
        raise FatalError(
            f"storePathRootDir={store_path} is the directory of replica {owner}, not of {self_id}"
        )


def check_no_epochs(disk: Disk, config: BrokerConfig) -> None:
    """Find out whether controllers have said who writes to a directory, and now nobody does.

    Raises:
        FatalError: what is written then would pass for the last master's of theirs.
    """
    try:
        names = disk.names(config.store_path)
    except OSError as error:
        raise FatalError(f"storePathRootDir={config.store_path}: {error}") from error
    if EPOCH_FILE in names and not config.enable_controller_mode:
        raise FatalError(
            f"{config.store_path}/{EPOCH_FILE}: controllers chose the master of these brokers."
            " Set enableControllerMode=true and controllerAddr; to go on without controllers,"
            " remove this file here and at all other brokers of the name"
        )


def check_log(disk: Disk, config: BrokerConfig) -> None:
    """Find out whether a log that was there is gone, of a group or not; see `check_log_is_there`.

    Raises:
        FatalError: it is.
    """
    path = config.store_path
    if not config.enable_dledger:
        anew = (
            f"and this broker is to begin with nothing, move away in {path}, too: consumequeue,"
            " index, checkpoint, consumequeue.checkpoint, consumequeue.clean, index.checkpoint"
        )
        check_log_is_there(disk, path, config.commit_log_directory, anew)
    elif SNAPSHOT not in _names(disk, config.dledger_directory):  # it may stand for all of the log
        anew = f"move {path} away as a whole: what the other members have comes back from them"
        check_log_is_there(disk, path, f"{config.dledger_directory}/data", anew)


def check_no_group(disk: Disk, config: BrokerConfig) -> None:
    """Find out whether the directory of a broker without a group holds the log of one.

    Before it had a plain log, LedgerMQ ran such a broker as a group of one, with its log in
    ``dledger-n0``; RocketMQ leaves ``dledger-ID`` where DLedger was switched off. How many members
    that group has the directory does not say, so the message names no peers: with fewer than there
    were a member would lead alone, and what the others acknowledged would be lost.

    Raises:
        FatalError: it does; the message says how to go on with that log.
    """
    path = config.store_path
    logs = [name for name in _names(disk, path) if name.startswith(_PREFIX)]
    if logs:
        member = logs[0].removeprefix(_PREFIX)
        raise FatalError(
            f"storePathRootDir={path} holds the log of a Raft group ({logs[0]}), which a broker"
            " without enableDLegerCommitLog does not read. To go on with it, set"
            f" enableDLegerCommitLog=true, {_group_of(disk, f'{path}/{logs[0]}')},"
            f" dLegerSelfId={member} and the dLegerPeers that it had: never fewer, or what the"
            " others acknowledged is lost; to begin anew, give this broker another directory"
        )


def check_no_plain_log(disk: Disk, config: BrokerConfig) -> None:
    """Find out whether a member of a group would pass over the messages of a plain log.

    RocketMQ reads on in the plain log that a broker had before DLedger was switched on. Without it
    the queues would be cut to what the log of the group has, and begin at 0 where that is nothing.

    Raises:
        FatalError: it would.
    """
    path = config.store_path
    where = config.commit_log_directory
    directories = (where, *config.store_path_commit_log.split(","))
    names = (name for one in directories if one for name in _names(disk, one))
    if not any(len(name) == _SEGMENT_NAME_CHARS and name.isdigit() for name in names):
        return
    if any(name.startswith(_PREFIX) for name in _names(disk, path)):
        raise FatalError(
            f"storePathRootDir={path}: {where} holds messages from before this group, which its"
            " members do not read, as RocketMQ's do. Let RocketMQ go on until its retention has"
            " removed the files there (fileReservedTime); or, if nobody needs them any more, move"
            f" {where} away at all members"
        )
    raise FatalError(
        f"storePathRootDir={path}: {where} holds messages of a broker without a group, which"
        " a member of a group does not read. Set enableDLegerCommitLog=false to serve them,"
        " or give the member another directory"
    )


def check_understood(disk: Disk, config: BrokerConfig) -> None:
    """Find out whether RocketMQ keeps something there that this broker would pass over.

    Raises:
        FatalError: it does; the message says what to do.
    """
    path, logs = config.store_path, config.store_path_commit_log
    if "," in logs and not config.enable_dledger:
        raise FatalError(
            f"storePathCommitLog={logs}: the log of a broker lies in one directory. With RocketMQ"
            " stopped, move all files of these into one of them, those of"
            " readOnlyCommitLogStorePaths, too (no two have the same name), and name it alone"
        )
    _check_tables(disk, f"{path}/config")
    queues = f"{path}/consumequeue"
    if _ROCKSDB in _names_if_any(disk, queues) and _is_file(disk, f"{queues}/{_ROCKSDB}"):
        raise FatalError(
            f"{queues} holds a RocksDB of RocketMQ 5 (storeType=defaultRocksDB), which this broker"
            " does not read. Move this directory away, and the queues are made from the log; go"
            " back to RocketMQ without those of this broker"
        )
    batches = _names_if_any(disk, f"{path}/{_BATCH_QUEUES}")
    if batches:
        raise FatalError(
            f"{path}/{_BATCH_QUEUES} holds queues of batches of RocketMQ 5 (queue.type=BatchCQ):"
            f" {', '.join(batches[:5])}. This broker does not read such topics, and would miscount"
            " what the log has of them: leave this directory to RocketMQ 5, and give this broker"
            " another one"
        )


def _check_tables(disk: Disk, directory: str) -> None:
    """Find out whether tables of RocketMQ 5 are in a RocksDB. Errors: `FatalError`: they are."""
    found = [
        name for name in _ROCKSDB_TABLES if _ROCKSDB in _names_if_any(disk, f"{directory}/{name}")
    ]
    if found:
        raise FatalError(
            f"{directory} holds tables of RocketMQ 5 in a RocksDB ({', '.join(found)}), which this"
            " broker does not read: topics, groups, how far these have consumed. While RocketMQ"
            " runs, have mqadmin write them as JSON (rocksDBConfigToJson), then stop it. Move these"
            " away once the JSON is there, or if nobody needs them"
        )


def _names_if_any(disk: Disk, directory: str) -> list[str]:
    try:
        return disk.names(directory)
    except NotADirectoryError:
        return []
    except OSError as error:
        raise FatalError(f"{directory} cannot be read: {error}") from error


def _is_file(disk: Disk, path: str) -> bool:
    try:
        disk.names(path)
    except OSError as error:
        return isinstance(error, NotADirectoryError)
    return False


def _group_of(disk: Disk, directory: str) -> str:
    """Return the setting of the group that a directory says it is of; RocketMQ's do not say it."""
    try:
        data = disk.read(f"{directory}/identity")
        return f"dLegerGroup={decode_identity(data).group}" if data else "the dLegerGroup it had"
    except (FatalError, OSError, ValueError):
        return "the dLegerGroup it had"


def _names(disk: Disk, directory: str) -> list[str]:
    try:
        return disk.names(directory)
    except OSError as error:
        raise FatalError(f"{directory} cannot be read: {error}") from error
