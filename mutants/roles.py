"""Planted bugs around roles: what replicas and controllers know again, write first, wait for."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

ROLES: Final = (
    Mutant(
        name="switch-confirmed-forgotten",
        breaks="A slave that was killed knows nothing as confirmed but what its queues have.",
        source="docs/adr/0020, step 2; a checkpoint of queues each five seconds.",
        plant=patch(
            "broker.modes.switched:SwitchedSlave._known_confirmed",
            ("max(self._core.store.applied, self._confirmed.position)", "self._core.store.applied"),
        ),
    ),
    Mutant(
        name="switch-confirmed-beyond-the-end",
        breaks="What comes where a log has lost its end counts as confirmed by what was there.",
        source="A position that outlives the log that it speaks of.",
        plant=patch(
            "store.ha.switch.confirmed:ConfirmedFile.load",
            ("if found > end:", "if False:"),
        ),
    ),
    Mutant(
        name="switch-settled-before-its-epoch",
        breaks="What an elected slave has more is read before its epoch is on disk.",
        source="A power cut between the two; docs/adr/0020, reserve.",
        plant=patch(
            "broker.modes.switched:SwitchedSlave.settle",
            ("_begin_epoch(self._epochs, log, epoch)", "pass"),
        ),
    ),
    Mutant(
        name="switch-full-disk-ends-the-role",
        breaks="A broker ends that gets a role while its disk is full.",
        source="RocketMQ 5 changeToMaster on a full disk.",
        plant=patch(
            "broker.switch.broker:_is_of_a_full_disk",
            ("cause.errno in FULL", "False"),
        ),
    ),
    Mutant(
        name="controller-leaps-again-and-again",
        breaks="Snapshot by snapshot, each a little ahead, a controller goes to where places end.",
        source="Snapshots of whoever has the key.",
        plant=patch(
            "namesrv.controller.raft:Raft._may_install",
            ("last.index > self._index_max", "last.index > own + AHEAD_MAX"),
        ),
    ),
    Mutant(
        name="controller-term-leaps-again-and-again",
        breaks="Term by term, each a little ahead, a controller goes to where terms end.",
        source="Questions for votes of whoever has the key.",
        plant=patch(
            "namesrv.controller.raft:Raft._is_refused",
            ("message.term > self._term_max", "message.term > self.term + AHEAD_MAX"),
        ),
    ),
    Mutant(
        name="controller-zeroes-its-only-record",
        breaks="A damaged first record is gone for good, though the start is refused.",
        source="The end of a log is what a crash has cut short: there, nothing was promised.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal._load",
            ("if rest > 0 and not end and self._vote.term:", "if False:"),
        ),
    ),
    Mutant(
        name="switch-other-controllers-believed",
        breaks="A log with epochs of other controllers is elected first, and its broker ends.",
        source="RocketMQ 5 has no such check: EpochFileCache.appendEntry.",
        plant=patch(
            "broker.switch.registration:Registration._have_id",
            ("answer.view.epoch < last_epoch", "False"),
        ),
    ),
    Mutant(
        name="controller-any-named-one-is-elected",
        breaks="Who is named the master is it without a word of what is lost by that.",
        source="docs/adr/0020, who may be elected.",
        plant=patch(
            "namesrv.controller.processor:_accepts_loss",
            ("header.designate_elect and header.accept_loss", "header.designate_elect"),
        ),
    ),
    Mutant(
        name="switch-torn-record-counts",
        breaks="A killed replica tells the controllers of a record that was cut short as its end.",
        source="A process that is killed amid a write; elections where all in sync lost power.",
        plant=patch(
            "broker.switch.progress:LogProgress._find_end",
            ("if directory.was_clean:", "if not self.may_lack_end:"),
        ),
    ),
    Mutant(
        name="controller-that-is-new-is-not-greeted",
        breaks="A controller that leads right after its start replaces a master that lives.",
        source="A period of heartbeats that is longer than a new leader waits.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._greet",
            ("if self._config.controller_beat_ms >= GREET_MS:", "if False:"),
        ),
    ),
)
