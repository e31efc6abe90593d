"""Planted bugs where hostile or merely old input met a bound or a check that was not there."""

from typing import Final

from mutants.planting import Mutant, patch

LEFTOVERS: Final = (
    Mutant(
        name="settings-are-anybody-s",
        breaks="Who has no key takes queues and permissions of topics and groups away.",
        source="One request 200 or 17 silenced a consumer group.",
        plant=patch(
            "broker.cluster.guard:Guard.refusal_of_settings",
            ("if self._credentials.trust else None", "if False else None"),
        ),
    ),
    Mutant(
        name="questions-without-shares",
        breaks="Who asks for running information takes all the places for such questions.",
        source="307 and 309 shared 32 places among all, for ten seconds each.",
        plant=patch(
            "broker.processor.forward:ForwardProcessor._ask",
            ("if not self._share.fits(asker):", "if self.running >= FORWARDED_MAX:"),
        ),
    ),
    Mutant(
        name="copies-without-budget",
        breaks="A client has a large message copied in the log as often as it asks for it.",
        source="A request of 200 bytes had 4 MiB written.",
        plant=patch(
            "broker.sends.copy_budget:CopyBudget.take",
            ("if not self._share.fits(address, size):", "if False:"),
        ),
    ),
    Mutant(
        name="accepted-copies-limited",
        breaks="A message that waits is never delivered once maxMessageSize is smaller than it.",
        source="It was accepted, and acknowledged.",
        plant=patch(
            "store.write.commit_log:_was_accepted",
            ("return maybe_said(", "return False and maybe_said("),
        ),
    ),
    Mutant(
        name="bodies-taken-for-messages",
        breaks="A lone broker takes a record that lies in the body of a message for a message.",
        source="RocketMQ's log has no index of where its records begin.",
        plant=patch(
            "store.read.reader:Reader.message_at", ("if not self._is_replicated", "if False")
        ),
    ),
    Mutant(
        name="coroutines-without-turns",
        breaks="Requests that are served as coroutines begin as soon as they are read.",
        source="Ten thousand small requests that each take a millisecond held the loop.",
        plant=patch(
            "ledgermq.remoting.transport.turns:Turns.begin",
            ("while self.is_over():", "while False:"),
        ),
    ),
    Mutant(
        name="unnamed-tables-believed",
        breaks="A table whose file an earlier version left, or that it did not know, counts as"
        " complete up to the index that this version saved.",
        source="Upgraded members that applied copies of delayed messages delivered them again.",
        plant=patch(
            "broker.state.snapshot:Snapshot.load",
            ("if not found.get(name)", "if False and not found.get(name)"),
        ),
    ),
    Mutant(
        name="image-believed-whole-at-a-start",
        breaks="A broker that starts from its own image of an earlier version makes no table anew.",
        source="As above.",
        plant=patch(
            "broker.retention.compaction:Compactor._lacks_tables",
            ("return bool(lacking)", "return False"),
        ),
    ),
    Mutant(
        name="image-believed-whole",
        breaks="A table that the image of an earlier version lacks is not made from the log.",
        source="As above, for a member that is sent a snapshot.",
        plant=patch("broker.modes.raft:RaftMode.restore", ("if self.snapshot.lacking:", "if 0:")),
    ),
    Mutant(
        name="cancelled-beginnings-take-turns",
        breaks="Requests that were cancelled while they waited take the turns of others.",
        source="docs/security.md: turns of the loop.",
        plant=patch(
            "ledgermq.remoting.transport.turns:Turns._next",
            ("continue  #", "begun += 1; continue  #"),
        ),
    ),
)
"""Tests find them."""
