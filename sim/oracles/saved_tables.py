"""The tables on the disk are those that the log makes, up to the entry that is named with them.

A start reads them and applies what lies behind that entry, and nothing before it: what they lack
then is lost to that replica for good. That shows only if it starts just then, and nothing changes
the table again; so it is judged when ``appliedIndex.json`` gets its name, behind the tables.
Topics, groups, offsets and the progress of delays are read with code of its own, and compared with
a `Model` of the committed records up to that entry.
Source: spec/disk.md 5.6; `broker.state.snapshot` (the order of the files).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from broker.table_text import documents_of
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.model import Model
from sim.oracles.tables import LARGE, difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.disk import SimDisk
    from sim.oracles.truth import Truth

INDEX_FILE: Final = "/appliedIndex.json"
TEXT_CHARS: Final = 500


class SavedTables:
    """Judges what one member of a group saves.

    ``ahead``: the entry up to which its tables may be newer than what it has applied, after a crash
    or with a snapshot; what is saved before that is not judged.
    """

    name = "A38 tables saved that lack what they include"

    def __init__(
        self, disk: SimDisk, truth: Truth, findings: Findings, ahead: Callable[[], int]
    ) -> None:
        self._disk = disk
        self._truth = truth
        self._ahead = ahead
        self._model = Model()
        self.findings = findings
        disk.on_rename.append(self.on_rename)

    @guarded
    def on_rename(self, source: str, target: str) -> None:
        """A file is about to get its name."""
        if not target.endswith(INDEX_FILE):
            return
        index = json.loads(bytes(self._disk.look(source)))["appliedIndex"]
        if self._ahead() <= index <= self._truth.commit_index:
            model = self._model_at(index)
            if model.knows and model.rows <= LARGE:
                self._compare(target.removesuffix(INDEX_FILE), index, model)

    def _model_at(self, index: int) -> Model:
        count = bisect_right(self._truth.state_indexes, index)
        if count < self._model.count:  # another life, with the directory of an earlier one
            self._model = Model()
        for statement in self._truth.statements[self._model.count : count]:
            self._model.apply(statement)
        return self._model

    def _compare(self, directory: str, index: int, model: Model) -> None:
        offsets = {
            key: {int(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in self._rows(directory, "consumerOffset", "offsetTable").items()
            if queues
        }
        self._say(index, "offsets", offsets, model.offsets)
        levels = self._rows(directory, "delayOffset", "offsetTable")
        delivered = {int(level) - 1: offset for level, offset in levels.items()}
        self._say(index, "delayed", delivered, model.delivered)
        topics = self._rows(directory, "topics", "topicConfigTable")
        self._say(index, "topics", _stated(topics, model.topics), model.topics)
        groups = self._rows(directory, "subscriptionGroup", "subscriptionGroupTable")
        self._say(index, "groups", _stated(groups, model.groups), model.groups)

    def _rows(self, directory: str, file: str, member: str) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        path = f"{directory}/{file}.json"
        try:
            documents = list(documents_of(bytes(self._disk.look(path))))
        except RemoteProtocolError as error:
            text = f"{self._disk.host} has a {path} that nobody can read: {error}"
            raise Violation(self.name, text, node=self._disk.host) from error
        for document in documents:
            for key, value in self._decode(bytes(document))[member].items():
                known = rows.setdefault(key, value)
                if known is not value:
                    known.update(value)
        return rows

    def _decode(self, document: bytes) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(document)
        return read

    def _say(self, index: int, what: str, saved: dict[Any, Any], model: dict[Any, Any]) -> None:
        if saved != model:
            text = f"{self._disk.host} says that its tables include entry {index}; {what}: "
            text += difference((saved,), (model,))
            raise Violation(self.name, text[:TEXT_CHARS], node=self._disk.host, index=index)


def _stated(saved: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """Return of each row that the log states what it states, as it is saved."""
    return {
        key: {name: saved[key].get(name, value) for name, value in stated.items()}
        for key, stated in model.items()
        if key in saved
    }
