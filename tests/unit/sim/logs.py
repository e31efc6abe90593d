"""A committed log for tests of oracles: its entries are told apart by what they say."""

from chaos.history.segment import EntryRow
from sim.oracles.model import Statement
from sim.oracles.records import Parts
from sim.oracles.replica import Mark
from sim.oracles.truth import Truth

HOST = bytes(8)


def parts(**said):
    """What a record says that says nothing in particular."""
    usual = {
        "flag": 0, "sys_flag": 0, "born_ms": 7, "born_host": HOST, "stored_ms": 1_000,
        "reconsume_times": 0, "origin": None, "half": None, "physical": 48,
        "properties": {}, "body": b"body",
    }  # fmt: skip
    return Parts(**(usual | said))


class Log:
    """Adds entries to a `Truth`, one after the other."""

    def __init__(self):
        self.truth = Truth(("n0",))
        self.now_ns = 0
        self.truth.now_ns = lambda: self.now_ns
        self.truth.latest_ms = lambda: 1 << 60

    def add(self, topic, queue_id, key, said=None, body_hash=None):
        """Commit a message; return where it lies."""
        truth = self.truth
        index = len(truth.committed)
        offset = len(truth.queues[topic, queue_id])
        truth.rows[index, 1] = EntryRow(
            entry_index=index, term=1, pos=100 * index, entry_crc=0, size=52, crc_ok=True,
            type="message", topic=topic, queue_id=queue_id, queue_offset=offset, msg_key=key,
            body_hash=key if body_hash is None else body_hash, payload_run_id="ab",
        )  # fmt: skip
        truth.parts[index, 1] = said = said or parts()
        truth.times[index, 1] = said.stored_ms
        truth.commit(index, Mark(1, 100 * index, 100, 0), 1)
        return (topic, queue_id, offset)

    def state(self, kind, content):
        """Commit a record of state."""
        truth = self.truth
        index = len(truth.committed)
        truth.rows[index, 1] = EntryRow(
            entry_index=index, term=1, pos=100 * index, entry_crc=0, size=52, crc_ok=True,
            type="state",
        )  # fmt: skip
        truth._stated[index, 1] = Statement(index, 0, kind, content)
        truth.commit(index, Mark(1, 100 * index, 100, 0), 1)

    def id_of(self, place):
        """Return the id that the broker gives to what lies at a place."""
        row = self.truth.row(*place)
        return f"{0:016X}{row.pos + 48:016X}"
