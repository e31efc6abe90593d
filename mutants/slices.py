"""Planted bugs of work that is done in slices, and of limits that few runs come near.

They show where something comes between two slices, or where there is more than one.
Sources: RocketMQ; docs/operations.md, docs/protocol.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

SLICES: Final = (
    Mutant(
        name="wake-forgets-who-is-left",
        breaks="Of the pulls that a message wakes, those that are for a later turn stay held.",
        source="RocketMQ PullRequestHoldService.notifyMessageArriving wakes all that wait.",
        plant=patch(
            "broker.pulls.wake_up:WakeUp._run",
            (
                "        if left > 0:\n            del arrived[place]\n",
                "        del arrived[place]\n",
            ),
        ),
    ),
    Mutant(
        name="due-waits-for-a-place",
        breaks="What is due while as much as may be is under way waits, though places become free.",
        source="RocketMQ ScheduleMessageService goes on as soon as copies are written.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._end_one",
            (
                "    if self._is_full() and not self._is_resting:\n        self._alarm.set(0)\n",
                "",
            ),
            (
                "    self._in_flight_bytes -= size_bytes\n",
                "    self._in_flight_bytes -= size_bytes\n"
                "    if self._is_full() and not self._is_resting:\n        self._alarm.set(0)\n",
            ),
        ),
    ),
    Mutant(
        name="snapshot-of-later-tables",
        breaks="A snapshot says that its tables have what was applied while they became text.",
        source="Raft, section 7: the last included index is that of the state.",
        plant=patch(
            "broker.retention.compaction:Compactor.compact",
            ("            state_index = self._log.index_before(self._store.applied)\n", ""),
            (
                "            is_synced = await",
                "            state_index = self._log.index_before(self._store.applied)\n"
                "            is_synced = await",
            ),
        ),
    ),
    Mutant(
        name="woken-though-it-leads-no-more",
        breaks="Of the pulls held when a leader is deposed, those for a later turn are answered"
        " with messages.",
        source="docs/adr/0007: reads belong to the leader.",
        plant=patch(
            "broker.processor.pull:PullProcessor._serve",
            ("not self._store.readable", "False"),
        ),
    ),
    Mutant(
        name="piece-read-before-its-beginning",
        breaks="Who goes back in a queue gets places from the end of a piece that begins later.",
        source="RocketMQ ConsumeQueue.getIndexBuffer begins at the offset that is asked for.",
        plant=patch("store.read.reader:Reader._units", ("at < 0 or at", "at")),
    ),
    Mutant(
        name="locks-of-the-first-slice-alone",
        breaks="Of a long list of queues to lock those of the first slice are locked, again.",
        source="RocketMQ RebalanceLockManager.tryLockBatch goes through the whole list.",
        plant=patch(
            "broker.processor.lock:LockProcessor._in_slices",
            ("body.mq_set[first : first + SLICE]", "body.mq_set[:SLICE]"),
        ),
    ),
    Mutant(
        name="row-between-two-slices-lost",
        breaks="A table that is saved in slices lacks the row behind each of them.",
        source="RocketMQ ConfigManager.persist writes the whole table.",
        plant=patch(
            "broker.table_text:text_in_steps",
            (
                'part, weight, head = [], 0, b",\\n"\n',
                'part, weight, head = [], 0, b",\\n"\n            continue\n',
            ),
        ),
    ),
    Mutant(
        name="released-in-one-slice",
        breaks="A broker that leads no more sends the first slice of held pulls away, no other.",
        source="RocketMQ answers all that it holds; docs/consumption.md.",
        plant=patch(
            "broker.pulls.release:HeldPulls._go_on",
            (
                "    if not self._leads and attempt(self.name, self._release) and self._held():\n"
                "        asyncio.get_running_loop().call_soon(self._go_on)\n",
                "    attempt(self.name, self._release)\n",
            ),
        ),
    ),
)  # fmt: skip
