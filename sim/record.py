"""The history of a simulated run, in the columns of `chaos.history.tables`, for `chaos.checker`.

It belongs to the harness, so that it survives the crash of a client: what such a client had under
way stays ``info``. Times are the virtual ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.history.outcome import CLIENT_CRASHED
from chaos.history.payload import body_hash, decode_body, run_tag
from sim.workload import TAGS_DRAWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgermq.client import MessageExt, Producer, PushConsumer
    from sim.faults.plan import Workload
    from sim.trace import Trace

Row = dict[str, Any]


class Record:
    """Rows of sends, deliveries and commits, and the numbers that a result shows."""

    def __init__(self, run_id: str, trace: Trace) -> None:
        self.run_id = run_id
        self.tag = run_tag(run_id)
        self._trace = trace
        self.sends: list[Row] = []
        self._sent_ns: dict[int, int] = {}
        self.deliveries: list[Row] = []
        self.counters: dict[str, int] = {}
        self.follow: Callable[[Producer], None] = lambda _producer: None
        """Has what a producer says judged."""
        self.follow_consumer: Callable[[PushConsumer], None] = lambda _push: None
        """Likewise what a consumer hands out."""
        self.has_tags = False
        """Whether messages are sent with tags."""
        self.is_rich = False
        """Whether they have several keys, and properties of their user's."""
        self.has_grown = False
        """Whether the topic was to have more queues: who begins anew takes none away."""

    def follow_workload(self, workload: Workload) -> None:
        """Take what messages look like."""
        self.has_tags, self.is_rich = workload.tags, workload.rich

    def tag_of(self, key: int | None) -> str:
        """Return the tag that a message is sent with, empty for none."""
        return TAGS_DRAWN[key % len(TAGS_DRAWN)] if self.has_tags and key else ""

    @property
    def now_ns(self) -> int:
        """The virtual time."""
        return self._trace.now_ns

    def count(self, what: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[what] = self.counters.get(what, 0) + by

    def sending(self, op_id: int, topic: str, bodies: Sequence[tuple[int, bytes]]) -> list[Row]:
        """Note a send of ``(key, body)``; unknown until `Record.sent`."""
        rows: list[Row] = []
        for key, body in bodies:
            row: Row = {
                "op_id": op_id,
                "msg_key": key,
                "topic": topic,
                "body_hash": body_hash(body),
                "body_len": len(body),
                "t_inv": self._trace.now_ns,
                "t_cmp": None,
                "outcome": "info",
                "err_code": CLIENT_CRASHED,
                "attempts": 1,
                "queue_id": None,
                "queue_offset": None,
                "node": None,
                "phase": "main",
            }
            rows.append(row)
            self._sent_ns[key] = self._trace.now_ns
        self.sends += rows
        self.count("sent", len(rows))
        return rows

    def sent_ns(self, key: int) -> int:
        """Return when the send of a message was begun; 0 of one that nobody sent."""
        return self._sent_ns.get(key, 0)

    def sent(self, rows: Sequence[Row], outcome: str, **columns: object) -> None:
        """Note how a send ended."""
        now = self._trace.now_ns
        for row in rows:
            row["t_cmp"], row["outcome"] = now, outcome
            row.update(columns)
        self.count(outcome, len(rows))
        first = rows[0]
        self._trace.event(
            "sent", "-", op=first["op_id"], outcome=outcome, topic=first["topic"],
            queue=first["queue_id"], offset=first["queue_offset"], messages=len(rows),
        )  # fmt: skip

    def delivered(self, message: MessageExt, group: str, consumer: str) -> tuple[int | None, int]:
        """Note a delivery; returns the message's key and the fingerprint of its body.

        It is noted when a listener is done with it: when it was polled is not known here.
        """
        body = message.content()
        payload = decode_body(body)
        key = None if payload is None else payload.msg_key
        digest = body_hash(body)
        now = self._trace.now_ns
        self.deliveries.append(
            {
                "op_id": len(self.deliveries),
                "grp": group,
                "consumer": consumer,
                "generation": 0,
                "topic": message.topic,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "msg_key": key,
                "payload_run_id": None if payload is None else payload.run_tag,
                "body_hash": digest,
                "reconsume": message.reconsume_times,
                "is_retry": False,
                "t_recv": now,
                "auditor": group == AUDITOR,
            }
        )
        self.count("delivered")
        return key, digest


AUDITOR = "auditor"
