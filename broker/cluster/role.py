"""What the Raft role means to the cluster: the leader that takes writes is broker 0.

Pure. Source: spec/disk.md 6.3; RocketMQ DLedgerRoleChangeHandler.
"""

from __future__ import annotations

import re
from typing import Final

MASTER_ID: Final = 0
_NUMBER: Final = re.compile(r"(\d+)\Z")


def replica_number(self_id: str) -> int:
    """Return the number in a replica's id: ``n2`` is 2; 0 for an id without one."""
    match = _NUMBER.search(self_id)
    return int(match.group(1)) if match else 0


def broker_id(self_id: str, *, writable: bool) -> int:
    """Return the broker id under which this replica registers now."""
    return MASTER_ID if writable else replica_number(self_id) + 1
