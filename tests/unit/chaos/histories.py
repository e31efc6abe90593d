"""Small histories for the checker's tests: a clean one, and ways to spoil it."""

from typing import Any

from chaos.checker import History, Replica
from chaos.history.segment import EntryRow

TOPIC, GROUP, TAG = "t", "g", "00" * 16
Row = dict[str, Any]


def send(key: int, *, outcome: str = "ok", offset: int | None = None, **more: Any) -> Row:
    row: Row = {
        "op_id": key, "msg_key": key, "topic": TOPIC, "queue_id": 0, "body_hash": key * 1000,
        "queue_offset": key if offset is None else offset, "t_inv": key * 10, "t_cmp": key * 10 + 5,
        "outcome": outcome, "attempts": 1, "err_code": None, "node": "n0", "phase": "main",
    }  # fmt: skip
    if outcome != "ok":
        row["queue_id"] = row["queue_offset"] = None
    return row | more


def delivery(key: int | None, *, offset: int | None = None, **more: Any) -> Row:
    place = (key if offset is None else offset) or 0
    return {
        "op_id": 900 + place, "grp": GROUP, "topic": TOPIC, "queue_id": 0, "queue_offset": place,
        "msg_key": key, "body_hash": (key or 0) * 1000, "payload_run_id": TAG,
        "t_recv": 1000 + place, "auditor": False,
    } | more  # fmt: skip


def audited(key: int, **more: Any) -> Row:
    return delivery(key, grp="auditor", auditor=True, **more)


def drain(**more: Any) -> Row:
    return {
        "grp": GROUP, "topic": TOPIC, "queue_id": 0, "min_off": 0, "end_off": 10, "read_to": 10,
        "empty_polls": 2, "drained": True,
    } | more  # fmt: skip


def entry(index: int, key: int | None, *, term: int = 1, **more: Any) -> EntryRow:
    row = EntryRow(
        entry_index=index, term=term, pos=index * 100, entry_crc=7000 + (key or 0), size=100,
        crc_ok=True, type="message" if key is not None else "noop", topic=TOPIC, queue_id=0,
        queue_offset=key, msg_key=key, body_hash=None if key is None else key * 1000,
        payload_run_id=TAG,
    )  # fmt: skip
    return row._replace(**more)


def replica(node: str, keys: list[int | None], *, commit: int | None = None) -> Replica:
    rows = [entry(index, key) for index, key in enumerate(keys)]
    end = len(rows) - 1
    return Replica(
        node=node, rows=rows, commit_index=end if commit is None else commit, end_index=end
    )


def fault(fault_id: str, kind: str = "kill", **more: Any) -> Row:
    return {
        "fault_id": fault_id, "kind": kind, "targets": ["n0"], "status": "healed",
        "t_on0": 20, "t_on1": 21, "t_off0": 40, "t_off1": 41,
        "witness": {"effective": True, "during": 0.0},
    } | more  # fmt: skip


def clean(**more: Any) -> History:
    """Three acknowledged messages, each delivered, audited and on three replicas."""
    keys = [1, 2, 3]
    parts: dict[str, Any] = {
        "topic": TOPIC,
        "group": GROUP,
        "run_ids": frozenset({TAG}),
        "sends": [send(key) for key in keys],
        "deliveries": [delivery(key) for key in keys] + [audited(key) for key in keys],
        "drain": [drain()],
        "replicas": [replica(node, [None, 1, 2, 3]) for node in ("n0", "n1", "n2")],
    }
    return History(**(parts | more))
