"""The page of a campaign: one file, no script, nothing from elsewhere, legible on a phone. Pure.

Three questions in this order: how did it end, what did it find, what did it cover.
"""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.campaign.outcome import EXCEEDED, FAILED, Cause, Outcome, Seen, by_cause
from chaos.campaign.plan import Job
from chaos.checker.model import INVALID, UNKNOWN, VALID
from chaos.style import STYLE

VERDICTS: Final = (VALID, INVALID, UNKNOWN, EXCEEDED, FAILED)
WORST_FIRST: Final = (INVALID, FAILED, UNKNOWN, EXCEEDED, VALID)
CAUSES_SHOWN: Final = 200
RUNS_SHOWN: Final = 500
RUNS_OF_A_CAUSE: Final = 8
_CLASSES: Final = {VALID: "valid", INVALID: "invalid", FAILED: "invalid"}
_MORE: Final = """
.grid td,.grid th{padding:.28rem .55rem;text-align:right;white-space:nowrap}
.grid th:first-child{position:sticky;left:0;background:var(--paper);text-align:left}
.grid th.k{writing-mode:vertical-rl;transform:rotate(180deg);text-align:left;font-weight:500}
.bar{display:flex;height:.7rem;border-radius:4px;overflow:hidden;margin:.6rem 0 1.2rem}
.bar i{display:block}.bar .valid{background:var(--good)}.bar .invalid{background:var(--bad)}
.bar .warn{background:var(--warn)}
td,summary{overflow-wrap:anywhere}
@media print{details{break-inside:avoid}.wide{overflow:visible}}
@media (max-width:40rem){body{padding:1rem .8rem 3rem}.verdict{font-size:1.6rem}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the page says of the campaign besides its runs."""

    title: str
    program: str
    """How the ``ledgermq`` command is called where the campaign ran."""
    total: int | None = None
    """How many runs there will be; None: nobody knows."""
    going_on: bool = False
    links: Mapping[int, str] = field(default_factory=dict)
    """Where the report of a run is, by number, relative to the page."""


def render(outcomes: Sequence[Outcome], about: About) -> str:
    """Return the page as HTML text."""
    body = "".join(
        (
            _head(outcomes, about),
            _found(by_cause(outcomes), about),
            _covered(outcomes),
            _runs(outcomes, about),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_e(about.title)}</title><style>{STYLE}{_MORE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def replay_command(job: Job, program: str) -> str:
    """Return what to type for the same scenario, seed and settings again."""
    words = [program, "chaos run", job.scenario, "--seed", str(job.seed)]
    words += [] if job.mutant is None else ["--break", job.mutant]
    return " ".join([*words, *job.options])


def _e(value: object) -> str:
    return html.escape(str(value))


def _head(outcomes: Sequence[Outcome], about: About) -> str:
    tally = Counter(one.verdict for one in outcomes)
    parts = [f"{tally[word]} {word}" for word in VERDICTS if tally[word]]
    state = "goes on" if about.going_on else "as far as it went"
    of = "" if about.total is None else f" of {about.total}"
    hours = sum(one.seconds for one in outcomes) / 3600
    worst = next((verdict for verdict in WORST_FIRST if tally[verdict]), VALID)
    word = "Nothing ran yet" if not outcomes else ", ".join(parts)
    bars = "".join(
        f'<i class="{_class(name)}" style="flex:{tally[name]}"></i>'
        for name in VERDICTS
        if tally[name]
    )
    total: Counter[str] = Counter()
    for one in outcomes:
        total.update(one.counts)
    faults = sum(seen.overlapped for one in outcomes for seen in one.faults.values())
    facts = [
        ("runs", f"{len(outcomes)}{of}"),
        ("hours", f"{hours:.1f}"),
        ("acknowledged", f"{total['acknowledged']:,}"),
        ("delivered", f"{total['delivered']:,}"),
        ("lost", f"{total['lost']:,}"),
        ("faults that count", f"{faults:,}"),
    ]
    cells = "".join(
        f"<div><dt>{name}</dt><dd{_alarm(name, value)}>{value}</dd></div>" for name, value in facts
    )
    return (
        f"<h1>{_e(about.title)} · {state}</h1>"
        f'<div class="verdict {_class(worst)}">{_e(word)}</div>'
        f'<div class="bar">{bars}</div><dl>{cells}</dl>'
    )


def _alarm(name: str, value: str) -> str:
    return ' class="alarm"' if name == "lost" and value != "0" else ""


def _class(verdict: str) -> str:
    return _CLASSES.get(verdict, "unknown warn")


def _found(causes: Sequence[Cause], about: About) -> str:
    if not causes:
        return "<h2>Found</h2><p>Nothing.</p>"
    rows = "".join(_cause(cause, about) for cause in causes[:CAUSES_SHOWN])
    more = len(causes) - CAUSES_SHOWN
    rest = f'<p class="soft">{more} further causes are in summary.json.</p>' if more > 0 else ""
    return f"<h2>Found, by cause</h2>{rows}{rest}"


def _cause(cause: Cause, about: About) -> str:
    first, many = cause.runs[0], len(cause.runs)
    word = "run" if many == 1 else "runs"
    names = ", ".join(_link(one, about) for one in cause.runs[:RUNS_OF_A_CAUSE])
    more = f" and {many - RUNS_OF_A_CAUSE} more" if many > RUNS_OF_A_CAUSE else ""
    tally = Counter(one.verdict for one in cause.runs)
    ended = [(verdict, tally[verdict]) for verdict in WORST_FIRST if tally[verdict]]
    told = " ".join(
        f'<b class="{_class(verdict)}">{_e(verdict)}{f" {number}" if len(ended) > 1 else ""}</b>'
        for verdict, number in ended
    )
    return (
        f"<details><summary>{told} "
        f"{_e(cause.cause)} <span class=soft>({many} {word})</span></summary>"
        f"<p>{_e(cause.summary)}</p><p>{names}{more}</p>"
        f"<p><code>{_e(replay_command(first.job, about.program))}</code></p></details>"
    )


def _link(one: Outcome, about: About) -> str:
    name = _e(one.job.words)
    place = about.links.get(one.job.number)
    return name if place is None else f'<a href="{_e(place)}">{name}</a>'


def _covered(outcomes: Sequence[Outcome]) -> str:
    table = coverage(outcomes)
    kinds = sorted({kind for row in table.values() for kind in row})
    if not kinds:
        return "<h2>Covered</h2><p>No fault was planned.</p>"
    heads = "".join(f'<th class="k">{_e(kind)}</th>' for kind in kinds)
    rows = "".join(
        f"<tr><th>{_e(name)}</th>" + "".join(_cell(row.get(kind)) for kind in kinds) + "</tr>"
        for name, row in table.items()
    )
    sums = {kind: Seen() for kind in kinds}
    for row in table.values():
        for kind, seen in row.items():
            sums[kind].add(seen)
    last = "".join(_cell(sums[kind]) for kind in kinds)
    return (
        "<h2>Covered</h2><p class=soft>Faults by scenario and kind: injected / witnessed / "
        "witnessed while a send was under way. Only the last number counts.</p>"
        f'<div class="wide"><table class="grid"><tr><th>scenario</th>{heads}</tr>{rows}'
        f"<tr><th>all</th>{last}</tr></table></div>"
    )


def coverage(outcomes: Iterable[Outcome]) -> dict[str, dict[str, Seen]]:
    """Return the faults of all runs by scenario and kind."""
    table: dict[str, dict[str, Seen]] = {}
    for one in outcomes:
        row = table.setdefault(f"{one.job.title}{one.job.place}", {})
        for kind, seen in one.faults.items():
            row.setdefault(kind, Seen()).add(seen)
    return dict(sorted(table.items()))


def _cell(seen: Seen | None) -> str:
    if seen is None or not seen.planned:
        return "<td></td>"
    css = "valid" if seen.overlapped == seen.planned else "invalid" if not seen.overlapped else ""
    title = f"{seen.planned} planned, {seen.in_flight} sends under way"
    words = f"{seen.injected}/{seen.witnessed}/{seen.overlapped}"
    return f'<td class="{css or "unknown"}" title="{title}">{words}</td>'


def _runs(outcomes: Sequence[Outcome], about: About) -> str:
    newest = list(reversed(outcomes))[:RUNS_SHOWN]
    rows = "".join(
        f"<tr><td>{one.job.number}</td><td>{_link(one, about)}</td>"
        f'<td class="{_class(one.verdict)}">{_e(one.verdict)}</td>'
        f'<td class="n">{one.counts.get("acknowledged", 0):,}</td>'
        f'<td class="n">{one.seconds:.0f} s</td></tr>'
        for one in newest
    )
    left = len(outcomes) - len(newest)
    rest = f'<p class="soft">{left} earlier runs are in summary.json.</p>' if left else ""
    return (
        '<h2>Runs, the newest first</h2><div class="wide"><table><tr><th>no.</th><th>run</th>'
        '<th>verdict</th><th class="n">acknowledged</th><th class="n">took</th></tr>'
        f"{rows}</table></div>{rest}"
    )
