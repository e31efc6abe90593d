"""Planted bugs of the HA stream: of the master, of the slave, and of what a synchronous one awaits.

Sources: docs/replication.md; RocketMQ HAService, HAConnection, HAClient.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MASTER_SLAVE: Final = (
    Mutant(
        name="ha-acknowledged-before-the-slave",
        breaks="A synchronous master says SEND_OK once it has the message itself.",
        source="RocketMQ GroupTransferService: sync double write.",
        plant=patch(
            "store.ha.gate:Gate.limit",
            ("return min(own, self.confirmed), None", "return own, None"),
        ),
    ),
    Mutant(
        name="ha-slave-that-has-gone-counts",
        breaks="A synchronous master waits for a slave that is not connected any more.",
        source="RocketMQ HAService.isSlaveOK: connectionCount.",
        plant=patch(
            "store.ha.gate:Gate.on_slaves",
            ("max(positions, default=None)", "max(positions, default=self.best)"),
        ),
    ),
    Mutant(
        name="ha-hanging-up-not-told",
        breaks="A slave whose connection has ended is still the best of those that are there.",
        source="RocketMQ HAService.isSlaveOK: connectionCount falls as a connection ends.",
        plant=patch(
            "store.ha.master:HaMaster.on_closed",
            ("        self.on_report()\n", ""),
        ),
    ),
    Mutant(
        name="ha-slave-far-behind-counts",
        breaks="A slave counts as there however much it lacks.",
        source="RocketMQ haSlaveFallbehindMax.",
        plant=patch(
            "store.ha.gate:Gate.keeps_up",
            ("and end - self.best < self.behind_max", "and end >= 0"),
        ),
    ),
    Mutant(
        name="ha-one-late-releases-all",
        breaks="When one message has waited too long, those that came just now do not wait.",
        source="RocketMQ GroupTransferService: each request has its own deadline.",
        plant=patch(
            "store.ha.gate:Gate.pass_time",
            ("max(self.released, late)", "max(self.released, end if late else 0)"),
        ),
    ),
    Mutant(
        name="ha-lack-not-told",
        breaks="What no slave has is answered SEND_OK where no slave is there.",
        source="RocketMQ SLAVE_NOT_AVAILABLE.",
        plant=patch(
            "store.ha.master_log:MasterLog._ask",
            ("if lack is not None and position", "if lack is None and position"),
        ),
    ),
    Mutant(
        name="ha-sent-before-the-sync",
        breaks="A master with SYNC_FLUSH sends what a loss of power may take from it.",
        source="docs/adr/0019; RocketMQ sends what is written.",
        plant=patch(
            "store.ha.master_log:MasterLog.bytes_at",
            ("own = self.own_position", "own = self.end_position"),
        ),
    ),
    Mutant(
        name="ha-unsent-confirmed",
        breaks="A master believes a slave that reports what it was never sent.",
        source="docs/security.md, masters and slaves.",
        plant=patch(
            "store.ha.master:SlaveLink._take",
            ("not self.position <= position <= self._next", "position < self.position"),
        ),
    ),
    Mutant(
        name="ha-question-confirms",
        breaks="A synchronous master takes what a slave asks for as what it has.",
        source="docs/replication.md, one message.",
        plant=patch("store.ha.master:SlaveLink._take", ("= not is_first", "= True")),
    ),
    Mutant(
        name="ha-unverified-confirms",
        breaks="A slave repeats its first report before it has compared anything.",
        source="docs/replication.md, one message.",
        plant=patch(
            "store.ha.slave:MasterLink.pass_time",
            ("elif self.is_verified and now_ms", "elif now_ms"),
        ),
    ),
    Mutant(
        name="ha-record-ends-the-slave",
        breaks="A record with an offset that its queue cannot have ends a slave at every start.",
        source="docs/security.md, masters and slaves.",
        plant=patch(
            "store.dispatch.anomalies:Copied._on_gap",
            (
                "self._gaps[queue] = queue.max_offset",
                "raise self._lost_units(queue, offset, physical)",
            ),
        ),
    ),
    Mutant(
        name="ha-lost-units-left-aside",
        breaks="A slave that lost units of a queue leaves aside all that comes behind them.",
        source="docs/security.md, quarantine: this replica has lost units.",
        plant=patch(
            "store.dispatch.anomalies:Unreplicated.skips",
            (
                "raise self._lost_units(queue, offset, physical)",
                "return self._on_gap(queue, offset, physical)",
            ),
        ),
    ),
    Mutant(
        name="ha-longer-slave-taken",
        breaks="A slave whose log is longer than the master's follows, from where both differ.",
        source="RocketMQ HAConnection takes any offset; its slaves diverge after a lost tail.",
        plant=patch(
            "store.ha.master:SlaveLink._find_start",
            ("if position > log.last_to_ask_for:", "if False:"),
        ),
    ),
    Mutant(
        name="ha-appended-behind-a-gap",
        breaks="A slave appends what does not begin where its log ends.",
        source="RocketMQ HAClient.dispatchReadRequest closes then.",
        plant=patch(
            "store.ha.assembly:Assembly.add",
            ("if position != self.position:", "if position < self.position:"),
        ),
    ),
    Mutant(
        name="ha-begins-anywhere",
        breaks="An empty slave begins where the positions of its log soon fit no report.",
        source="spec/wire.md: a report is a signed 64-bit number.",
        plant=patch("store.ha.intake:Intake._begin", ("if position > HA_BEGIN_MAX:", "if False:")),
    ),
    Mutant(
        name="ha-record-unchecked",
        breaks="A slave writes what is no record, or has another CRC.",
        source="RocketMQ HAClient writes whatever comes.",
        plant=patch("store.ha.assembly:Assembly._walk", ("if found != size:", "if False:")),
    ),
    Mutant(
        name="ha-other-log-followed",
        breaks="A slave follows a master whose log ends otherwise than its own.",
        source="docs/adr/0019; RocketMQ compares positions alone.",
        plant=patch("store.ha.intake:Intake._compare", ("if count > 0 and", "if count < 0 and")),
    ),
    Mutant(
        name="ha-reports-read-at-once",
        breaks="Who sends a master reports without end has a turn of its loop for 32,768 of them.",
        source="By hand, one stranger at the HA port: sends took 1.1 s where they take 20 ms.",
        plant=patch(
            "store.ha.master:SlaveLink.__init__",
            ("bytearray(HA_REPORTS_BYTES_MAX)", "bytearray(1 << 18)"),
        ),
    ),
    Mutant(
        name="ha-reported-before-written",
        breaks="A slave confirms what it has in memory alone.",
        source="RocketMQ HAClient.reportSlaveMaxOffset: the max offset of its log.",
        plant=patch(
            "store.ha.intake:Intake.report",
            ("return self._log.own_position if", "return self._assembly.position if"),
        ),
    ),
    Mutant(
        name="ha-dispatch-at-the-old-beginning",
        breaks="A new slave takes the master's last file, and looks for messages in the first.",
        source="found by test_a_new_slave_begins_with_the_last_file_and_goes_on.",
        plant=patch(
            "store.ha.slave_log:SlaveLog.begin_at", ("self._user.on_begun(position)", "pass")
        ),
    ),
    Mutant(
        name="ha-recent-from-its-beginning",
        breaks="What came together is dispatched from its first record on, again and again.",
        source="store.plain.view:PlainView.walk begins where it is asked to.",
        plant=patch("store.ha.recent:Recent.walk", ("if position >= start:", "if True:")),
    ),
    Mutant(
        name="ha-recent-goes-on-beyond",
        breaks="A slave dispatches what it has got, though not all of the set has confirmed it.",
        source="store.plain.view:PlainView.walk ends where it is asked to.",
        plant=patch("store.ha.recent:Recent.walk", ("if position >= end or", "if")),
    ),
)

PACED: Final = (
    Mutant(
        name="ha-backlog-at-full-speed",
        breaks="A slave that catches up is sent as much as it takes while clients are served.",
        source="RocketMQ 5 maxHaTransferByteInSecond; docs/performance.md, a master and its slave.",
        plant=patch("store.ha.pace:Pace.is_due", ("now_ms - self._served_ms >= SERVED_MS", "True")),
    ),
    Mutant(
        name="ha-backlog-saves-up",
        breaks="After a quiet hour a slave is sent all at once what was not sent in it.",
        source="A token bucket has a size.",
        plant=patch(
            "store.ha.pace:Pace._earn",
            ("min(self._saved_bytes + earned, SAVED_BYTES_MAX)", "self._saved_bytes + earned"),
        ),
    ),
    Mutant(
        name="ha-backlog-before-answers",
        breaks="Each send waits until a slave that catches up was sent its next share.",
        source="docs/performance.md, what sends notice of a slave that catches up.",
        plant=patch("store.ha.master:SlaveLink.on_moved", ("if not self._scheduled:", "if True:")),
    ),
    Mutant(
        name="ha-backlog-not-paced",
        breaks="A master does not ask whether the next share is due.",
        source="docs/performance.md, what sends notice of a slave that catches up.",
        plant=patch(
            "store.ha.master:SlaveLink._push_soon",
            ("if self._master.pace.is_due(self._master.clock.monotonic_ms()):", "if True:"),
        ),
    ),
    Mutant(
        name="ha-backlog-read-in-the-loop",
        breaks="A master stands still while its disk reads what a slave lacks.",
        source="docs/performance.md, what sends notice of a slave that catches up.",
        plant=patch(
            "store.ha.master:SlaveLink._send_some",
            ("if not self._paused and self._waits_for_disk():", "if False:"),
        ),
    ),
    Mutant(
        name="ha-backlog-starved",
        breaks="A slave that catches up gets nothing while others follow a log that grows fast.",
        source="A share that is spent by those who are not held to it.",
        plant=patch(
            "store.ha.master:SlaveLink._send_some",
            ("if self._next < self._log.own_position:", "if True:"),
        ),
    ),
)
"""Found by `tests/unit/store/ha/test_pace.py`."""

SYNCED: Final = (
    Mutant(
        name="plain-sync-fails-unheard",
        breaks="A log whose sync cannot begin goes on, and acknowledges nothing any more.",
        source="What a callback of the loop raises ends nothing by itself.",
        plant=patch(
            "store.plain.log:PlainLog._begin_sync",
            ("self._guard(self._flusher.begin)", "self._flusher.begin()"),
        ),
    ),
)
"""Found by `tests/unit/store/plain/test_syncs.py`."""
