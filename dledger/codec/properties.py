"""The small files of a replica: ``currterm``, ``checkpoint``, ``identity``, as DLedger writes such.

One ``key=value`` a line, in any order; unknown keys are kept for those who know them.

| file | keys |
|---|---|
| currterm | currTerm, voteLeader (empty: no vote), fresh (ours, only while it is so: true) |
| checkpoint | endIndex, committedIndex |
| identity | group, selfId, storeId (ours; DLedger has no such file) |

Source: MemberState.persistState, DLedgerMmapFileStore.persistCheckPoint, IOUtils.properties2String.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dledger.core.model import NO_INDEX, HardState, LogIndex


class Checkpoint(NamedTuple):
    """What was synced when it was written: the end of the log, and how far it was committed."""

    end_index: LogIndex = NO_INDEX
    committed_index: LogIndex = NO_INDEX


class Identity(NamedTuple):
    """Whose directory it is."""

    group: str
    self_id: str
    store_id: str


def encode_hard_state(state: HardState) -> bytes:
    """Return the content of ``currterm``."""
    values = {"voteLeader": state.voted_for or "", "currTerm": str(state.term)}
    if state.fresh:
        values["fresh"] = "true"
    return _encode(values)


def decode_hard_state(data: bytes) -> HardState:
    """Read ``currterm``. Errors: `ValueError`."""
    values = _decode(data)
    term = int(values["currTerm"])
    if term < 0:
        raise ValueError(f"currTerm is {term}")
    return HardState(term, values.get("voteLeader") or None, values.get("fresh") == "true")


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the content of ``checkpoint``."""
    committed, end = str(checkpoint.committed_index), str(checkpoint.end_index)
    return _encode({"committedIndex": committed, "endIndex": end})


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read ``checkpoint``. Errors: `ValueError`."""
    values = _decode(data)
    return Checkpoint(int(values["endIndex"]), int(values["committedIndex"]))


def encode_identity(identity: Identity) -> bytes:
    """Return the content of ``identity``."""
    return _encode(
        {"group": identity.group, "selfId": identity.self_id, "storeId": identity.store_id}
    )


def decode_identity(data: bytes) -> Identity:
    """Read ``identity``. Errors: `ValueError`."""
    values = _decode(data)
    return Identity(values["group"], values["selfId"], values["storeId"])


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
