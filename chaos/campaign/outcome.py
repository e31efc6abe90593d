"""What is kept of a run for good: verdict, counts, faults by kind, findings by cause. Pure.

A cause is what two runs have in common that found the same: the check, the layer that lost a
message where one did, and the kinds of faults in force; or, where nothing could be decided, the
reason without its numbers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from chaos.campaign.plan import Job
from chaos.checker.compose import BEYOND, EXIT_CODES, EXIT_EXCEEDED, EXIT_HARNESS
from chaos.checker.model import INVALID, UNKNOWN, VALID

EXCEEDED, FAILED = "exceeded", "failed"
WORDS: Final[Mapping[int, str]] = {
    **{code: word for word, code in EXIT_CODES.items()},
    EXIT_EXCEEDED: EXCEEDED,
}
"""Verdicts by exit code; every other code is a run that the harness could not make."""
_WORST: Final = (INVALID, FAILED, UNKNOWN, EXCEEDED)
_CODES: Final = {FAILED: EXIT_HARNESS} | {word: code for code, word in WORDS.items()}
CAUSE_MAX: Final = 300
"""Longest name of a cause, in characters."""
_FINDINGS_MAX: Final = 60


class Seen(msgspec.Struct, kw_only=True):
    """The faults of one kind: how many were planned, and what became of them."""

    planned: int = 0
    injected: int = 0
    """Applied: the machine said that it was done."""
    witnessed: int = 0
    """Their witness saw that they took effect."""
    overlapped: int = 0
    """Witnessed, and a send was under way: those that count."""
    in_flight: int = 0
    """Sends under way, of those that count."""

    def add(self, other: "Seen") -> None:
        """Count what another run had of this kind."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    check: str
    """Id of the check; empty where it is none of one."""
    cause: str
    count: int = 0
    summary: str = ""
    verdict: str = INVALID
    """Of the check."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is over."""

    job: Job
    verdict: str
    """valid, invalid, unknown, exceeded (valid, but the contract was) or failed (no verdict)."""
    exit_code: int
    began_ms: int
    """Wall time, in milliseconds since 1970."""
    seconds: float
    counts: dict[str, int] = {}
    faults: dict[str, Seen] = {}
    findings: tuple[Finding, ...] = ()
    flush: str = ""
    has_report: bool = False

    @property
    def shown(self) -> set[str]:
        """The checks that were violated: not those of which nobody knows."""
        return {one.check for one in self.findings if one.verdict == INVALID and one.check}


def outcome(
    job: Job,
    exit_code: int,
    times: tuple[int, float],
    files: Mapping[str, Any],
    faults: Iterable[Mapping[str, Any]] = (),
) -> Outcome:
    """Return what is kept of a run.

    ``times``: when it began (wall, ms) and how many seconds it took. ``files``: the content of its
    JSON files, by name (``run``, ``inprocess``, ``results``, ``judgement``), {} for one that is not
    there, and ``said``: the end of what it printed, as a list of lines. ``faults``: the rows of
    that table.
    """
    rows = list(faults)
    verdict = WORDS.get(exit_code, FAILED)
    if not files.get("inprocess"):
        verdict = FAILED
    if verdict == FAILED:
        last = next((line for line in reversed(files.get("said") or ()) if line.strip()), "")
        why = f"the run failed with exit code {exit_code}: {last.strip() or 'it said nothing'}"
        findings: list[Finding] = [Finding(check="", cause=_plain(why), summary=why)]
    else:
        findings = list(_findings(files, rows))[:_FINDINGS_MAX]
    return Outcome(
        job=job,
        verdict=verdict,
        exit_code=exit_code,
        began_ms=times[0],
        seconds=round(times[1], 1),
        counts={k: int(v) for k, v in (files.get("inprocess") or {}).get("counts", {}).items()},
        faults=count_faults(rows, files.get("inprocess") or {}),
        findings=tuple(findings),
        flush=str((files.get("run") or {}).get("contract", {}).get("flush", "")),
        has_report=bool(files.get("report")),
    )


def count_faults(rows: Iterable[Mapping[str, Any]], local: Mapping[str, Any]) -> dict[str, Seen]:
    """Return the faults by kind, as the table ``faults`` and the in-process verdict have them."""
    details = local.get("checks", {}).get("A47", {}).get("details", {})
    about = {one["fault_id"]: one for one in details.get("faults", ())}
    found: dict[str, Seen] = {}
    for row in rows:
        mine = about.get(row["fault_id"], {})
        counts = bool(mine.get("counts"))
        one = Seen(
            planned=1,
            injected=int(row.get("t_on1") is not None),
            witnessed=int(bool((row.get("witness") or {}).get("effective"))),
            overlapped=int(counts),
            in_flight=int(mine.get("in_flight", 0)) if counts else 0,
        )
        found.setdefault(str(row["kind"]), Seen()).add(one)
    return dict(sorted(found.items()))


def spent_s(outcomes: Iterable[Outcome]) -> float:
    """Return how many seconds runs took, those in which two were under way counted once."""
    spent, end = 0.0, 0.0
    for one in sorted(outcomes, key=lambda one: one.began_ms):
        began = one.began_ms / 1000
        spent += max(0.0, began + one.seconds - max(began, end))
        end = max(end, began + one.seconds)
    return spent


def worst_code(outcomes: Iterable[Outcome]) -> int:
    """Return the exit code of all runs together: the worst verdict of any."""
    seen = {one.verdict for one in outcomes}
    return next((_CODES[word] for word in _WORST if word in seen), 0)


class Cause(msgspec.Struct, kw_only=True):
    """What several runs found, and which ones."""

    check: str
    cause: str
    runs: list[Outcome]
    count: int = 0
    summary: str = ""
    """Of the first run that found it."""


def by_cause(outcomes: Iterable[Outcome]) -> list[Cause]:
    """Return the findings of all runs, the cause with the worst verdict and most runs first."""
    found: dict[str, Cause] = {}
    for one in outcomes:
        for finding in one.findings:
            first = Cause(check=finding.check, cause=finding.cause, runs=[])
            first.summary = finding.summary
            cause = found.setdefault(finding.cause, first)
            if cause.runs[-1:] != [one]:  # several of its findings may have one cause
                cause.runs.append(one)
            cause.count += finding.count
    order = [*_WORST, VALID]
    return sorted(
        found.values(),
        key=lambda c: (min(order.index(one.verdict) for one in c.runs), -len(c.runs), c.cause),
    )


def _findings(files: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    kinds = {str(row["fault_id"]): str(row["kind"]) for row in rows}
    worst: dict[str, Mapping[str, Any]] = {}
    for checker in ("inprocess", "results"):
        for check, found in ((files.get(checker) or {}).get("checks") or {}).items():
            told = found["verdict"] in {INVALID, UNKNOWN}
            known = worst.get(check)
            if not (told or (check in BEYOND and found["count"])):
                continue
            if known is None or (found["verdict"] == INVALID != known["verdict"]):
                worst[check] = found
    # What is violated first: pages and JUnit show the first few, or one.
    for check, found in sorted(worst.items(), key=lambda one: one[1]["verdict"] != INVALID):
        yield _finding(check, found, kinds)
    for reason in (files.get("judgement") or {}).get("reasons", ()):
        if not re.match(r"(Spark: )?A\d+\b", reason):
            yield Finding(check="", cause=_plain(reason), summary=reason)


def _finding(check: str, found: Mapping[str, Any], kinds: Mapping[str, str]) -> Finding:
    title, summary = str(found.get("title", "")), str(found.get("summary", ""))
    if found["verdict"] == UNKNOWN:
        cause = _plain(f"{check} {title}: {summary}")
    else:
        evidence = found.get("evidence") or ()
        where = Counter(str(one["where"]) for one in evidence if one.get("where"))
        during = sorted({kinds.get(str(f), str(f)) for one in evidence
                         for f in one.get("faults") or ()})  # fmt: skip
        place = f", {where.most_common(1)[0][0]}" if where else ""
        cause = _plain(f"{check} {title}{place}" + (f" ({', '.join(during)})" if during else ""))
    count, verdict = int(found.get("count") or 0), str(found["verdict"])
    return Finding(check=check, cause=cause, count=count, summary=summary, verdict=verdict)


def _plain(text: str) -> str:
    """Return a text without what differs from run to run: numbers and paths."""
    short = re.sub(r"\S*/\S+", "...", " ".join(text.split()))
    return re.sub(r"(?<![A-Za-z0-9])\d[\d,.:]*", "n", short)[:CAUSE_MAX]
