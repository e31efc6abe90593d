"""How a transactional producer decides: by the message's key, so that any of its group can tell.

Some halves are decided at once, some only when the broker asks; what is said is on record before it
is said. The word stands, whoever hears it: a decision that is lost is asked for again.
"""

from typing import Any

from chaos.history.payload import decode_body
from chaos.record import Recorder
from ledgermq.client import HalfMessage, TransactionOptions, TransactionState
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.clock import Clock

FATES = ("commit", "commit", "rollback", "commit", "rollback")
DECIDED_AT_ONCE = 3
"""So many of the fates are told at once, the others when the broker asks."""
OPTIONS = TransactionOptions(execute_timeout_ms=1_000)
"""A decision takes no time: a half is immune for two seconds only, so runs see brokers ask."""
STATES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}


class Decider:
    """The listener of a transactional producer."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock

    async def execute(self, _message: HalfMessage, arg: int) -> TransactionState:
        """Decide a half, or leave it open."""
        fate = arg % len(FATES)
        if fate >= DECIDED_AT_ONCE:
            return TransactionState.UNKNOWN
        self._record(arg, FATES[fate])
        return STATES[FATES[fate]]

    async def check(self, message: MessageExt) -> TransactionState:
        """Say what became of a half, which another producer may have sent."""
        payload = decode_body(message.content() or b"")
        if payload is None:
            return TransactionState.UNKNOWN
        fate = FATES[payload.msg_key % len(FATES)]
        self._record(payload.msg_key, "checkback", fate)
        return STATES[fate]

    def _record(self, key: int, step: str, answer: str | None = None) -> None:
        t_ns = self._clock.monotonic_ns()
        row: dict[str, Any] = {"txn_id": key, "msg_key": key, "step": step, "answer": answer}
        self._recorder.write("txn", row | {"t_inv": t_ns, "t_cmp": t_ns, "outcome": "ok"})
