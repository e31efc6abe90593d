"""The small files of a replica: ``currterm``, ``checkpoint``, ``identity``, as DLedger writes such.

And ``synced``, which is ours and binary: endIndex and committedIndex of the checkpoint that it goes
with, the index of the last entry synced, each in 8 bytes, big-endian, and a CRC-32 of these.

One ``key=value`` a line, in any order; unknown keys are kept for those who know them.

| file | keys |
|---|---|
| currterm | currTerm, voteLeader (empty: no vote), fresh (ours, only while it is so: true) |
| checkpoint | endIndex, committedIndex |
| identity | group, selfId, storeId, adopted (ours; DLedger has no such file) |

Source: MemberState.persistState, DLedgerMmapFileStore.persistCheckPoint, IOUtils.properties2String.
"""

import re
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from dledger.core.model import NO_INDEX, HardState, LogIndex

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}\Z")
_MARK: Final = Struct(">qqq")
MARK_BYTES: Final = _MARK.size + 4
_STORE_ID: Final = re.compile(r"[0-9a-f]{1,16}\Z")


class Checkpoint(NamedTuple):
    """What was synced when it was written: the end of the log, and how far it was committed."""

    end_index: LogIndex = NO_INDEX
    committed_index: LogIndex = NO_INDEX


class Identity(NamedTuple):
    """Whose directory it is."""

    group: str
    self_id: str
    store_id: str
    adopted: bool = False
    """Whether the log was here before us: DLedger drops its beginning without leaving word."""


def encode_hard_state(state: HardState) -> bytes:
    """Return the content of ``currterm``."""
    values = {"voteLeader": state.voted_for or "", "currTerm": str(state.term)}
    if state.fresh:
        values["fresh"] = "true"
    return _encode(values)


def decode_hard_state(data: bytes) -> HardState:
    """Read ``currterm``. Errors: `ValueError`."""
    values = _decode(data)
    term = _number(values, "currTerm", 0)
    return HardState(term, values.get("voteLeader") or None, values.get("fresh") == "true")


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the content of ``checkpoint``."""
    committed, end = str(checkpoint.committed_index), str(checkpoint.end_index)
    return _encode({"committedIndex": committed, "endIndex": end})


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read ``checkpoint``. Errors: `ValueError`."""
    values = _decode(data)
    end, committed = (_number(values, key, NO_INDEX) for key in ("endIndex", "committedIndex"))
    if committed > end:
        raise ValueError(f"endIndex is {end}, committedIndex {committed}")
    return Checkpoint(end, committed)


def encode_mark(checkpoint: Checkpoint, index: LogIndex) -> bytes:
    """Return the content of ``synced``: entries up to ``index`` were synced by then."""
    content = _MARK.pack(*checkpoint, index)
    return content + crc32(content).to_bytes(4, "big")


def decode_mark(data: bytes, checkpoint: Checkpoint) -> LogIndex:
    """Return what ``synced`` says beside this checkpoint, `NO_INDEX` if it says nothing."""
    content, crc = data[: _MARK.size], data[_MARK.size :]
    if len(data) != MARK_BYTES or crc != crc32(content).to_bytes(4, "big"):
        return NO_INDEX
    end_index, committed_index, index = _MARK.unpack(content)
    return LogIndex(index) if checkpoint == (end_index, committed_index) else NO_INDEX


def encode_identity(identity: Identity) -> bytes:
    """Return the content of ``identity``."""
    values = {"group": identity.group, "selfId": identity.self_id, "storeId": identity.store_id}
    if identity.adopted:
        values["adopted"] = "true"
    return _encode(values)


def decode_identity(data: bytes) -> Identity:
    """Read ``identity``. Errors: `ValueError`."""
    values = _decode(data)
    store_id = values["storeId"]
    if not _STORE_ID.match(store_id):
        raise ValueError(f"storeId is {store_id!r}")
    adopted = values.get("adopted") == "true"
    return Identity(values["group"], values["selfId"], store_id, adopted)


def _number(values: Mapping[str, str], key: str, low: int) -> int:
    text = values[key]
    if not _NUMBER.match(text) or int(text) < low:
        raise ValueError(f"{key} is {text!r}")
    return int(text)


def _encode(values: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def _decode(data: bytes) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        for line in data.decode().splitlines():
            if line.strip() and not line.startswith(("#", "!")):
                key, _, value = line.partition("=")
                values[key.strip()] = value.strip()
    except UnicodeDecodeError as error:
        raise ValueError("not text") from error
    return _Required(values)


class _Required(dict[str, str]):
    """A dict whose missing keys are a bad value and not a bug."""

    def __missing__(self, key: str) -> str:
        raise ValueError(f"key {key} is missing")
