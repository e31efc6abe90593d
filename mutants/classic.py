"""Planted bugs of master and slaves that the simulator finds, beside those that tests had before.

Sources: docs/replication.md; docs/adr/0019; RocketMQ HAService, HAConnection, SlaveSynchronize.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

CLASSIC: Final = (
    Mutant(
        name="ha-timeout-not-told",
        breaks="What no slave has confirmed in time is answered SEND_OK.",
        source="RocketMQ FLUSH_SLAVE_TIMEOUT.",
        plant=patch(
            "store.ha.gate:Gate.limit",
            (
                "return min(own, self.released), Lack.TIMEOUT",
                "return min(own, self.released), None",
            ),
        ),
    ),
    Mutant(
        name="ha-resumed-at-the-end",
        breaks="A slave that comes back gets what is new from then on, and not what it lacks.",
        source="RocketMQ HAConnection.WriteSocketService: nextTransferFromWhere.",
        plant=patch(
            "store.ha.master:SlaveLink._find_start",
            ("    return position\n", "    return log.own_position\n"),
        ),
    ),
    Mutant(
        name="ha-counted-before-the-sync",
        breaks="With SYNC_FLUSH a master and a slave count what they have not synced.",
        source="docs/replication.md: flushDiskType counts on each machine by itself.",
        plant=patch(
            "store.plain.log:PlainLog._find_own",
            ("return flusher.synced_position if self._is_sync else", "return"),
        ),
    ),
    Mutant(
        name="ha-slave-silent-to-its-readers",
        breaks="A slave hands out nothing of what it has got.",
        source="RocketMQ DefaultMessageStore.ReputMessageService runs on slaves as well.",
        plant=patch(
            "store.ha.slave_log:SlaveLog.copy",
            ("self._work_off()", "self._write()"),
        ),
    ),
    Mutant(
        name="slave-not-asked-while-the-master-is-gone",
        breaks="A consumer waits for its master, and does not go to a slave.",
        source="RocketMQ MQClientInstance.findBrokerAddressInSubscribe.",
        plant=patch(
            "ledgermq.client.leader:LeaderCalls.reader",
            ("if slave is None:", "if slave is None or name:"),
        ),
    ),
)
