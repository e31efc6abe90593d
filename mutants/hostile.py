"""Planted bugs of work that one turn of the loop must not do, and of what is told to the wrong one.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

HOSTILE: Final = (
    Mutant(
        name="half-of-any-number",
        breaks="A record of a half is believed whatever its numbers are.",
        source="A forged entry: half a row was written, and no replica could save its tables.",
        plant=patch(
            "broker.transactions.table:HalfTable.open",
            ("type=_Opened", "type=tuple[int, int, int, int, int, int]"),
        ),
    ),
    Mutant(
        name="offsets-of-any-number",
        breaks="A record of consumer offsets is believed whatever its numbers are.",
        source="A forged entry: the text of the table could not be made, at each start again.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply",
            ("type=_Rows", "type=dict[str, dict[int, int]]"),
        ),
    ),
    Mutant(
        name="saved-offsets-of-any-number",
        breaks="A text of the table of consumer offsets is believed whatever its numbers are.",
        source="consumerOffset.json with 30 digits: no client could read an answer, and no slave"
        " took the table.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.restore_steps",
            (
                "decode_file(document, _Snapshot).offset_table",
                "msgspec.json.decode(document)['offsetTable']",
            ),
        ),
    ),
    Mutant(
        name="queue-begins-anywhere",
        breaks="A queue begins at whatever offset its first message states.",
        source="A forged entry with 2^63 - 1: no checkpoint of the queues could be written.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._has_place",
            ("elif offset > FIRST_OFFSET_MAX:", "elif offset > 2**70:"),
        ),
    ),
    Mutant(
        name="huge-file-read-whole",
        breaks="A file of a directory of ours is read whole, however large it is.",
        source="topics.json as a sparse file of 3 GiB: 1.3 GB of memory, and no answer.",
        plant=patch("ledgermq.runtime.regular:_check_size", ("> READ_BYTES_MAX", "> 2**62")),
    ),
    Mutant(
        name="bad-path-crashes",
        breaks="A path that cannot be used ends a process with a trace.",
        source="A directory of somebody else, in which topics.json is a link to itself.",
        plant=patch(
            "ledgermq.runtime.process:run_main", ("error.errno not in BAD_PATHS or", "True or")
        ),
    ),
    Mutant(
        name="restored-in-one-turn",
        breaks="A table of a snapshot is read in one turn of the loop, all of it.",
        source="A million open halves took 2.3 s and 460 MB.",
        plant=patch("broker.table_text:documents_of", ("if found is None:", "if True:")),
    ),
    Mutant(
        name="dispatch-during-a-restore",
        breaks="Entries are applied while the state before them is being restored.",
        source="docs/adr/0002: all replicas apply the same.",
        plant=patch(
            "store.dispatch.turns:DispatchTurns._is_held",
            ("return self._restoring is not None", "return False"),
        ),
    ),
    Mutant(
        name="saved-during-a-restore",
        breaks="Tables are saved while others take their place, as of the entry of the others.",
        source="docs/adr/0002: tables with the index that they include.",
        plant=patch(
            "broker.state.snapshot:Snapshot.capture_steps", ("if self._is_replaced:", "if False:")
        ),
    ),
    Mutant(
        name="installed-state-read-again",
        breaks="A snapshot that was verified in a thread is read and verified in the loop again.",
        source="A quarter of a second for tables at their limits.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles.state",
            ("installed, self._installed = self._installed, None", "installed = None"),
        ),
    ),
    Mutant(
        name="image-copied-in-one-turn",
        breaks="A compaction copies a whole table into its image in one turn of the loop.",
        source="It took 67 ms at the limits.",
        plant=patch(
            "broker.retention.compaction:image_steps",
            ("range(0, len(text), COPIED_PER_STEP)", "range(0, len(text), 1 << 40)"),
            ("at + COPIED_PER_STEP", "at + (1 << 40)"),
        ),
    ),
    Mutant(
        name="foreign-members-merged-at-once",
        breaks="Where RocketMQ wrote members that we do not know, a whole table is parsed at once.",
        source="A thread that parses holds the lock of the interpreter all the while.",
        plant=patch(
            "broker.state.shared_snapshot:_merged",
            ("documents_of(bytes(joined(parts)))", "iter([bytes(joined(parts))])"),
        ),
    ),
    Mutant(
        name="one-connection-a-turn",
        breaks="Of the connections that wait, one is taken in a turn of the loop.",
        source="uvloop 0.21: during a flood that were 80 a second.",
        plant=patch(
            "ledgermq.remoting.transport.acceptor:Acceptor.on_accepted",
            ("if not self._is_due and", "if False and"),
        ),
    ),
    Mutant(
        name="all-counted-for-each-connection",
        breaks="A full server counts all its connections for each new one.",
        source="1.6 ms for each connection of a flood, and 17 are taken in a turn.",
        plant=patch(
            "ledgermq.remoting.transport.shares:ByAddress.count",
            (
                "len(self._all.get(address, ()))",
                "sum(one.remote[0] == address for them in self._all.values() for one in them)",
            ),
        ),
    ),
    Mutant(
        name="whole-turns-for-each-connection",
        breaks="Each of many connections of an address goes on with a turn of its own.",
        source="A client beside a thousand connections that flood waited for a thousand turns.",
        plant=patch(
            "ledgermq.remoting.transport.turns:Turns.frames_max",
            ("max(FEW_FRAMES, ", "max(TURN_FRAMES_MAX, "),
        ),
    ),
)
"""Tests find them."""
