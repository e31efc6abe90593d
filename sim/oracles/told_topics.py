"""Which topics a broker tells tools, slaves and name servers: those that the log makes, no others.

On the wire (21). Judged where nothing was made or removed between question and answer.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.getAllTopicConfig, deleteTopic.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.tables import Tables
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

ALL_TOPICS: Final = 21
SUCCESS: Final = 0
NAME: Final = "A44 topics told otherwise than the log says"


class ToldTopics:
    """Judges the answers."""

    def __init__(self, truth: Truth, tables: Tables) -> None:
        self._truth = truth
        self._tables = tables
        self.judges = {ALL_TOPICS: self._on_all}

    def _on_all(self, replica: Replica, request: Said, answer: Said) -> None:
        model = self._tables.model_of(replica)
        is_changed = request.note.statements != len(self._truth.statements)
        if answer.code != SUCCESS or model is None or is_changed:
            return
        told = json.loads(answer.body)["topicConfigTable"].keys()
        gone = told & (model.topics_gone - model.topics.keys())
        lacks = model.topics.keys() - told
        if gone or lacks:
            raise Violation(
                NAME,
                f"{replica.name} tells {sorted(gone)[:5]}, which are removed, and leaves out "
                f"{sorted(lacks)[:5]}",
                node=replica.name,
            )
