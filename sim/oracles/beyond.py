"""No group is ahead of a queue: what it has committed, and is told, lies not behind the end (A19).

Whoever is ahead of the end never gets what comes next. By the committed log for the group of
brokers: each offset that it replicates, and each that a client commits or is told. Groups of odd
clients are left out: a broker takes any offset of a queue, as RocketMQ's does.
Source: spec/proof.md 3.4 (A19); RocketMQ #4771.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.oracles.model import Statement
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said, Tap

NAME: Final = "A19 a group is behind the end of a queue"
ODD: Final = "odd"
PULL, QUERY, COMMIT = 11, 14, 15
COMMITS: Final = 1
"""The flag of a pull that commits an offset."""
GROUP: Final = "consumerGroup"
COMMITTING: Final = "commits"
SUCCESS: Final = 0


class Ends(Protocol):
    """Where queues end, by the logs."""

    def end_of(self, address: str, queue: tuple[str, int]) -> int | None:
        """Return where a queue ends at the brokers at an address, None where nobody knows."""
        ...

    def has_lost_ends(self, address: str) -> bool:
        """Tell whether those brokers have ever lost the end of their log, as they may."""
        ...


class Beyond:
    """Listens at the clients' end of their connections to brokers; a `wire.Listener`.

    Args:
        known: where a queue ends at the brokers at an address.
    """

    def __init__(self, findings: Findings, known: Ends) -> None:
        self.findings = findings
        self._known = known
        self._excused: set[tuple[str, str, int]] = set()
        """Groups, by queue, that have consumed what a broker has lost since, as it may."""

    def check(self, statement: Statement, truth: Truth, *, excuses: bool = False) -> None:
        """Judge a committed record of state, by the log before it. Errors: `Violation`."""
        if statement.kind == "offset" and isinstance(statement.content, dict):
            self.check_rows(f"entry {statement.entry}", statement.content, truth, excuses=excuses)

    def check_rows(
        self, who: str, rows: Mapping[str, Mapping[Any, int]], truth: Truth, *, excuses: bool
    ) -> None:
        """Judge offsets by group and queue, as a log or a table has them. Errors: `Violation`.

        ``excuses``: they are of a broker that may lose the end of its log.
        """
        for key, queues in rows.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in () if group.startswith(ODD) else queues.items():
                end = len(truth.queues.get((topic, int(queue_id)), ()))
                is_excused = excuses and (group, topic, int(queue_id)) in self._excused
                if offset > end and not is_excused:
                    text = f"{who} has {group} at {offset} of {topic}/{queue_id}"
                    raise Violation(NAME, f"{text}, which ends at {end}")

    @guarded
    def on_request(self, tap: Tap, request: Said) -> None:
        """A client commits an offset."""
        if request.code == COMMIT or (
            request.code == PULL and request.number("sysFlag", 0) & COMMITS
        ):
            self._check(tap, request, request.number("commitOffset"), COMMITTING)

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A client is told how far its group is."""
        if request.code == QUERY and answer.code == SUCCESS:
            self._check(tap, request, answer.number("offset"), "is told")

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """What comes too late, or twice, is the broker's affair."""

    def _check(self, tap: Tap, request: Said, offset: int, what: str) -> None:
        queue, group = (request.text("topic"), request.number("queueId")), request.text(GROUP)
        end = self._known.end_of(tap.other, queue)
        if end is None or offset <= end:
            return
        if self._known.has_lost_ends(tap.other):
            if what == COMMITTING:
                self._excused.add((group, *queue))
            if (group, *queue) in self._excused:
                return
        text = f"{group} {what} {offset} of {queue}, which ends at {end}"
        raise Violation(NAME, f"{text} at {tap.other}")
