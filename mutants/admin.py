"""Planted bugs in what tools ask for and change.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

ADMIN: Final = (
    Mutant(
        name="all-names-in-one-turn",
        breaks="The traffic of all topics is counted in one turn of the loop.",
        source="50,000 topics with a group each: 2 s, every two seconds.",
        plant=patch(
            "broker.stats.counts:Traffic.fold",
            ("min(NAMES_PER_FOLD, len(self._waiting))", "len(self._waiting)"),
        ),
    ),
    Mutant(
        name="traffic-counted-again",
        breaks="What was counted is counted again at the next turn.",
        source="StatsItem: snapshots are differences of one growing value.",
        plant=patch("broker.stats.counts:Traffic.fold", ("self.new.clear()", "pass")),
    ),
    Mutant(
        name="long-answer-in-one-turn",
        breaks="An answer of any number of rows is made in one turn of the loop.",
        source="65,536 queues, a read from the log for each: a second for all other clients.",
        plant=patch(
            "broker.stats.walks:Walks._collect",
            ("if number % SLICE == 0 or now_ns() >= end_ns:", "if False:"),
        ),
    ),
    Mutant(
        name="answered-though-it-leads-no-more",
        breaks="A long answer that only a leader gives is given though it lost that meanwhile.",
        source="RocketMQ's brokers look at no role either; `broker.requests` does, at first.",
        plant=patch(
            "broker.stats.walks:Walks.answer",
            ("if of_leader and not self._is_leading():", "if False:"),
        ),
    ),
    Mutant(
        name="removed-offsets-come-back",
        breaks="A group is removed with its offsets, and what it committed last is written again.",
        source="RocketMQ ConsumerOffsetManager.removeOffset: the table is one.",
        plant=patch(
            "broker.offsets.removal:OffsetRemoval.of_group",
            ("self._offsets.withdraw(group)", "{}"),
        ),
    ),
    Mutant(
        name="deleted-topic-stays-with-followers",
        breaks="A topic's removal is not applied from the log.",
        source="AdminBrokerProcessor.deleteTopic: a slave syncs its table from the master.",
        plant=patch(
            "broker.state.topic_config:TopicTable.apply_removal",
            ("self._remove(removal.topic)", "pass"),
        ),
    ),
    Mutant(
        name="cpp-client-told-a-map",
        breaks="A client in C++ is told its offsets in the form that only Java reads.",
        source="Broker2Client.resetOffset: isC.",
        plant=patch(
            "broker.processor.reset:ResetProcessor._tell_all",
            ("in_cpp if client.language == LanguageCode.CPP else answer.body", "answer.body"),
        ),
    ),
    Mutant(
        name="shared-key-shown",
        breaks="Whoever asks for the settings is shown the key of the group.",
        source="AdminBrokerProcessor.getBrokerConfig shows all there is.",
        plant=patch(
            "ledgermq.runtime.settings:shown_settings",
            ("if not key.startswith(_SECRETS)", "if key"),
        ),
    ),
)
