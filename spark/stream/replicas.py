"""What nodes say of themselves while a run goes on, against the rules of Raft: A30, A32, A33.

A few answers a second and one row a node and a term: plain values, no stream is needed. Answers are
compared where one had ended before the next began, as the verdict of the whole run does it.
Source: spec/proof.md 3.6.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TERMS_MAX: Final = 1_000
"""So many terms are kept, the latest ones."""
NODES_MAX: Final = 1_000
"""So many lives of nodes are kept, the latest ones."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm: the check, its key as the verdict has it, when (ns), and words."""

    check: str
    key: str
    t: int
    explain: str


@dataclass(slots=True)
class Replicas:
    """What was heard of nodes so far. ``forget``: terms are not judged, a fault takes memory."""

    _leaders: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    _answers: dict[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)

    def hear(self, answers: Iterable[Mapping[str, Any]], *, forget: bool) -> Iterator[Alarm]:
        """Take answers (facts ``probe`` of `spark.stream.feed`) and yield what they break."""
        for answer in sorted(answers, key=lambda one: one["t"]):
            yield from self._of_term(answer)
            asked: list[tuple[str, str, tuple[str, ...]]] = [
                ("A33", "commit", ("boot",)),
                ("A33", "applied", ("boot",)),
            ]
            asked += [] if forget else [("A32", "term", ())]
            for check, name, life in asked:
                yield from self._falls(answer, check, name, life)
        self._bound()

    def _of_term(self, answer: Mapping[str, Any]) -> Iterator[Alarm]:
        if str(answer["role"]).lower() != "leader" or answer["term"] is None:
            return
        group, term = answer["raft_group"] or 0, answer["term"]
        nodes = self._leaders.setdefault((group, term), set())
        before = len(nodes)
        nodes.add(answer["node"])
        if before == 1 and len(nodes) == 2:
            words = f"term {term} is led by {' and '.join(sorted(nodes))}"
            yield Alarm("A30", f"{group}:{term}", answer["t"], words)

    def _falls(
        self, answer: Mapping[str, Any], check: str, name: str, life: tuple[str, ...]
    ) -> Iterator[Alarm]:
        if answer[name] is None:
            return
        member = (answer["node"], str(answer["raft_group"] or 0))  # each group has its own log
        key = (name, *member, *(str(answer[part]) for part in life))
        before = self._answers.pop(key, None)
        self._answers[key] = answer  # at the end: the latest are kept
        if before is None or answer[name] >= before[name] or before["ended"] >= answer["t"]:
            return
        words = f"{answer['node']}: {name} fell from {before[name]} to {answer[name]}"
        yield Alarm(check, f"{answer['node']}:answer at {answer['t']}", answer["t"], words)

    def _bound(self) -> None:
        for pair in sorted(self._leaders, key=lambda pair: pair[1])[:-TERMS_MAX]:
            del self._leaders[pair]
        for key in list(self._answers)[:-NODES_MAX]:
            del self._answers[key]
