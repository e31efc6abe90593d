"""Planted bugs of the controller: who may become master, and who may say who is in sync."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

CONTROLLER: Final = (
    Mutant(
        name="elected-though-not-in-sync",
        breaks="Any living replica may become master.",
        source="RocketMQ 5 with enableElectUncleanMaster=true; Kafka's unclean election.",
        plant=patch(
            "namesrv.controller.machine:_elect",
            ("if one in group.in_sync or not group.master_epoch", "if one"),
        ),
    ),
    Mutant(
        name="controller-elects-whoever-lives",
        breaks="While no in-sync replica lives, another one is elected that does.",
        source="Kafka's unclean election, KIP-966; RocketMQ 5 enableElectUncleanMaster.",
        plant=patches(
            patch(
                "namesrv.controller.machine:_elect",
                ("if one in group.in_sync or not group.master_epoch", "if one"),
            ),
            patch(
                "namesrv.controller.node:Controller._maybe_elect",
                (
                    "not (set(alive) & set(group.in_sync) or (alive and unclean))",
                    "not alive",
                ),
            ),
        ),
    ),
    Mutant(
        name="election-of-an-epoch-that-is-over",
        breaks="Two elections for the same death give two masters, one after the other.",
        source="A proposal that waited while another controller led.",
        plant=patch(
            "namesrv.controller.machine:_elect",
            ("if command.master_epoch != group.master_epoch:", "if False:"),
        ),
    ),
    Mutant(
        name="in-sync-set-by-a-former-master",
        breaks="A master of an earlier epoch changes the in-sync set.",
        source="RocketMQ 5 fences by the master epoch (CONTROLLER_FENCED_MASTER_EPOCH).",
        plant=patch(
            "namesrv.controller.machine:_alter",
            ("if command.master_epoch != group.master_epoch:", "if False:"),
        ),
    ),
    Mutant(
        name="in-sync-set-not-compared",
        breaks="A change of an in-sync set that the master does not know is taken.",
        source="A change that was sent twice, with another one between.",
        plant=patch(
            "namesrv.controller.machine:_alter",
            ("if command.in_sync_epoch != group.in_sync_epoch:", "if False:"),
        ),
    ),
    Mutant(
        name="started-broker-stays-master",
        breaks="A master that starts again is master at once, whatever its log has lost.",
        source="Kafka KIP-966: the last replica standing without its unflushed end.",
        plant=patch(
            "namesrv.controller.machine:_register",
            ("NO_MASTER if command.id == group.master else group.master", "group.master"),
        ),
    ),
    Mutant(
        name="lost-end-stays-in-sync",
        breaks="A replica that may have lost the end of its log can be elected at once.",
        source="KIP-966, unclean shutdowns; RocketMQ 5 with asynchronous flush.",
        plant=patch(
            "namesrv.controller.machine:_without_end_of",
            ("in_sync=left or group.in_sync,", "in_sync=group.in_sync,"),
        ),
    ),
    Mutant(
        name="lost-end-let-in-by-an-earlier-request",
        breaks="A master lets in who has lost the end of its log since it asked for that.",
        source="A request that is late; a replica that restarts meanwhile.",
        plant=patch(
            "namesrv.controller.machine:_without_end_of",
            (
                "in_sync_epoch=group.in_sync_epoch + 1,",
                "in_sync_epoch=group.in_sync_epoch + (bool(left) and left != group.in_sync),",
            ),
        ),
    ),
    Mutant(
        name="elected-in-absence-has-the-office",
        breaks="Who is elected after it lost its power shuts out those that have everything.",
        source="A power cut that closes no connection, and an election before it is noticed.",
        plant=patch(
            "namesrv.controller.machine:_without_end_of",
            ("command.last_epoch < group.reserve_epoch", "False"),
        ),
    ),
    Mutant(
        name="reserve-of-a-master-in-office",
        breaks="A master that took its office is followed by one that lacks what it acknowledged.",
        source="docs/adr/0020, who may be elected.",
        plant=patch(
            "namesrv.controller.machine:_without_end_of",
            ("command.last_epoch < group.reserve_epoch", "group.reserve_epoch"),
        ),
    ),
    Mutant(
        name="last-cut-elected",
        breaks="Of replicas that all lost their power the last to come back is elected.",
        source="docs/replication.md, who lost its power.",
        plant=patch(
            "namesrv.controller.machine:_elect",
            ("if group.in_doubt and not command.designated:", "if False:"),
        ),
    ),
    Mutant(
        name="elected-before-the-last-cut",
        breaks="Who has most of those that live is elected while one that had all is away.",
        source="docs/replication.md, who lost its power.",
        plant=patch(
            "namesrv.controller.machine:_elect", ("alive[:1] if whole else []", "alive[:1]")
        ),
    ),
    Mutant(
        name="older-log-of-other-controllers",
        breaks="A log with epochs of other controllers is made the first, and ends its broker.",
        source="docs/replication.md, a directory from before there was a controller.",
        plant=patch("namesrv.controller.node:Controller.older_log", ("and not heard.epoch", "")),
    ),
    Mutant(
        name="doubt-forgotten",
        breaks="A replica that was not in sync and loses its power ends the doubt about others.",
        source="docs/replication.md, who lost its power.",
        plant=patch(
            "namesrv.controller.machine:_without_end_of",
            ("in_doubt=group.in_doubt if left == group.in_sync else not left", "in_doubt=not left"),
        ),
    ),
    Mutant(
        name="doubt-heard-by-nobody",
        breaks="Where all lost their power the first one that is heard of is elected.",
        source="docs/replication.md, who lost its power.",
        plant=patch(
            "namesrv.controller.node:Controller._has_heard_all",
            ("len(alive) == len(group.replicas)", "alive"),
        ),
    ),
    Mutant(
        name="last-in-sync-replica-removed",
        breaks="The last replica that has all that was acknowledged can be removed.",
        source="RocketMQ 5 cleanBrokerData.",
        plant=patch(
            "namesrv.controller.machine:_remove",
            ("if group.in_sync and not members:", "if False:"),
        ),
    ),
    Mutant(
        name="id-of-another-directory",
        breaks="A new directory takes the id of one that was in sync.",
        source="A wiped disk in the place of a replica; RocketMQ 5 registerCheckCode.",
        plant=patch(
            "namesrv.controller.machine:_apply_id",
            (
                "if known is not None and known.check_code == command.check_code:",
                "if known is not None:",
            ),
        ),
    ),
    Mutant(
        name="stranger-put-in-sync",
        breaks="A replica that nobody hears of is put into the in-sync set.",
        source="RocketMQ 5 CONTROLLER_BROKER_NOT_ALIVE.",
        plant=patch("namesrv.controller.machine:_alter", ("    if silent:", "    if False:")),
    ),
    Mutant(
        name="controller-entry-not-synced",
        breaks="A controller confirms entries that the disk does not have yet.",
        source="PySyncObj issue 84: its journal is a map that nobody syncs.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal.add", ("self._file.fdatasync()", "pass")
        ),
    ),
    Mutant(
        name="controller-vote-not-kept",
        breaks="A controller that starts again has forgotten its term and its vote.",
        source="PySyncObj issue 201: members diverge after a restart of all.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal.setCurrentTerm",
            ("self._disk.replace(self._vote_path, msgspec.json.encode(vote))", "pass"),
        ),
    ),
    Mutant(
        name="controller-cut-by-a-late-message",
        breaks="A message that was overtaken by the next cuts off what that one brought.",
        source="PySyncObj deletes all behind prevLogIdx; Raft paper 5.3: on a conflict only.",
        plant=patch(
            "namesrv.controller.raft:Raft._is_refused",
            ("return message.term == term and message.end < index", "return False"),
        ),
    ),
    Mutant(
        name="controller-takes-a-commit-uncompared",
        breaks="A tail that no other controller has counts as committed.",
        source="PySyncObj takes min(leader's commit, own last index) from any message of a leader.",
        plant=patch(
            "namesrv.controller.raft:to_library",
            ("case Beat(term, _):", "case Beat(term, _NOT_COMPARED):"),
            ("case Install(term, _,", "case Install(term, _NOT_COMPARED,"),
        ),
    ),
    Mutant(
        name="controller-counts-old-answers",
        breaks="A follower's answer of an earlier term counts in this one.",
        source="PySyncObj's next_node_idx names no term.",
        plant=patch(
            "namesrv.controller.raft:Raft._is_refused", ("message.term != self.term", "False")
        ),
    ),
    Mutant(
        name="controller-removes-before-it-compares",
        breaks="The end of a log leaves the file before it is known to differ.",
        source="PySyncObj FileJournal.deleteEntriesFrom.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal.deleteEntriesFrom",
            ("del self._entries[entryFrom:]", "del self._entries[entryFrom:]; self._rewrite()"),
        ),
    ),
    Mutant(
        name="controller-replaces-what-was-committed",
        breaks="Another entry takes the place of a committed one.",
        source="PySyncObj only logs 'truncating already-applied log entries'.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal.add",
            ("if self._hidden and idx <= self._committed:", "if False:"),
        ),
    ),
    Mutant(
        name="controller-hears-anybody",
        breaks="Messages of other controllers count without a signature.",
        source="PySyncObj without a password unpickles what anybody sends.",
        plant=patch("namesrv.controller.links:Links._check", ("if trust:", "if False:")),
    ),
    Mutant(
        name="controller-hears-any-certificate",
        breaks="Whoever has a certificate of the CA speaks for any controller.",
        source="A broker's certificate says nothing of controllers.",
        plant=patch(
            "namesrv.controller.links:Links._check",
            ("if signer.role is not Role.KEY:", "if False:"),
        ),
    ),
    Mutant(
        name="controller-obeys-its-machine",
        breaks="Whoever can connect from the controller's machine replaces masters without a key.",
        source="Name servers let RocketMQ's own tools in so.",
        plant=patch(
            "namesrv.guard:Guard.refusal",
            ("self._trusts_machine and permission", "permission"),
        ),
    ),
    Mutant(
        name="controller-reads-sets-of-any-size",
        breaks="Whoever says who is in sync is read, however much it is.",
        source="Seven million numbers: nobody else was served for 7 s, and the leader deposed.",
        plant=patch(
            "namesrv.controller.processor:ControllerProcessor.alter",
            ("len(request.body) <= COMMAND_BYTES_MAX", "True"),
        ),
    ),
    Mutant(
        name="controller-takes-what-another-was-told",
        breaks="A signed request that one controller was sent counts at the next one.",
        source="Heartbeats of a dead master, played again at who leads, kept it alive: 52 s.",
        plant=patch(
            "namesrv.guard:Guard.refusal",
            ("audience=self._audience", 'audience=""'),
        ),
    ),
    Mutant(
        name="controller-stores-what-is-no-command",
        breaks="Bytes that are no command enter the log: every start ends when it applies them.",
        source="A peer of a newer version, or one that is not ours.",
        plant=patch(
            "namesrv.controller.wire:check_entries", ("if entry.payload is not None:", "if False:")
        ),
    ),
    Mutant(
        name="controller-takes-any-term",
        breaks="One message of a term without a successor: nobody is elected any more.",
        source="A message whose term is damaged, or set by whoever has the key.",
        plant=patch(
            "namesrv.controller.raft:Raft._is_refused",
            ("if message.term > self._term_max:", "if False:"),
        ),
    ),
    Mutant(
        name="controller-takes-any-place",
        breaks="One snapshot up to where indexes end: nothing can be appended behind it.",
        source="A snapshot of whoever has the key.",
        plant=patch(
            "namesrv.controller.raft:Raft._may_install",
            ("if last.index > self._index_max:", "if False:"),
        ),
    ),
    Mutant(
        name="controller-grants-any-wish",
        breaks="A peer wants an entry that no log has, and the leader fails over it.",
        source="PySyncObj's next_node_idx, which it believes.",
        plant=patch(
            "namesrv.controller.raft:Raft._is_refused",
            ("message.term != self.term or not is_known", "message.term != self.term"),
        ),
    ),
    Mutant(
        name="controller-ends-for-other-entries",
        breaks="One append over a committed entry ends a controller with its name server.",
        source="PySyncObj's append_entries, which cuts the log where it differs.",
        plant=patch(
            "namesrv.controller.raft:Raft._is_over_committed",
            ("if message.term < self.term:", "if True:"),
        ),
    ),
    Mutant(
        name="controller-doubts-whoever-is-left",
        breaks="One of two loses its power, and the other one's log counts no more than its own.",
        source="docs/replication.md, who lost its power: only where that is the last one.",
        plant=patch("namesrv.controller.machine:_without_end_of", ("else not left,", "else True,")),
    ),
    Mutant(
        name="controller-shut-out-for-good",
        breaks="A kept message of an earlier start shuts a controller out until it starts again.",
        source="A signature counts for a minute, and is forgotten by who starts again.",
        plant=patch(
            "namesrv.controller.wire:Order.take",
            ("now_ms - starts.heard_ms < RETURN_MS", "True"),
        ),
    ),
    Mutant(
        name="controller-asks-nobody-first",
        breaks="A controller that was cut off comes back with a higher term, and ends the leader.",
        source="PySyncObj has no pre-vote; Raft dissertation 9.6.",
        plant=patch("namesrv.controller.raft:Raft.turn", ("self._ask_first()", "pass")),
    ),
    Mutant(
        name="controller-votes-beside-a-leader",
        breaks="Who hears nothing is elected, though a majority hears the leader well.",
        source="Raft dissertation 9.6: only who has not heard a leader gives a pre-vote.",
        plant=patch(
            "namesrv.controller.raft:Raft._would_vote", ("not self._hears_a_leader()", "True")
        ),
    ),
    Mutant(
        name="controller-left-behind-by-its-term",
        breaks="One with a later term hears no leader, and no election raises the leader's term.",
        source="etcd #8501: with pre-votes nobody hears of a later term any more.",
        plant=patch(
            "namesrv.controller.raft:Raft._catch_up_with_term", ("if term > self.term", "if False")
        ),
    ),
    Mutant(
        name="controller-drops-what-is-damaged",
        breaks="A flipped bit counts as a write that was cut short: confirmed entries go silently.",
        source="A record that fails its checksum is taken for the end of the log.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal._load",
            ("if rest > 0 and not is_torn(", "if False and not is_torn("),
        ),
    ),
    Mutant(
        name="controller-first-come-first-master",
        breaks="An empty broker that asks first is the first master; who has a log is shut out.",
        source="RocketMQ 5 elects whoever asks where nobody was the master before.",
        plant=patch(
            "namesrv.controller.processor:ControllerProcessor.elect",
            ("wanted=0 if is_first else", "wanted="),
        ),
    ),
    Mutant(
        name="controller-late-registration-takes-the-office",
        breaks="A registration after a loss of power that comes late ends a master elected since.",
        source="docs/adr/0020: no request from before the last change of the set counts.",
        plant=patch(
            "namesrv.controller.processor:_is_overtaken",
            ("header.broker_may_lack_end and told", "False and told"),
        ),
    ),
    Mutant(
        name="controller-last-record-may-go",
        breaks="A damaged last record counts as a write that was cut short, though it was synced.",
        source="Raft 5.1: what was confirmed stays; PySyncObj takes damage for the end of the log.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal._load",
            ("if 0 < end < synced:", "if False:"),
        ),
    ),
    Mutant(
        name="controller-without-a-key",
        breaks="A controller that other machines reach starts without a key.",
        source="PySyncObj binds 0.0.0.0 without a password.",
        plant=patch(
            "namesrv.controller.config:ControllerConfig.__post_init__",
            ("if not self.is_authenticated:", "if False:"),
        ),
    ),
    Mutant(
        name="controller-takes-the-silent-for-dead",
        breaks="A controller that has just begun to lead replaces masters it has not heard of yet.",
        source="A new leader of controllers has not heard everybody's heartbeat yet.",
        plant=patch(
            "namesrv.controller.node:Controller._watch",
            ("if now_ms - self._leads_since_ms < GRACE_MS:", "if False:"),
        ),
    ),
)
