"""Writes RUN/report/index.html: one file, no external resource, readable in light and dark.

Source: spec/proof.md 4.5.
"""

import html
from collections import Counter
from pathlib import Path
from typing import Any, Final

from chaos.catalogue.faults import ANY
from chaos.report.data import FaultRow, RunData, load_run
from chaos.report.plots import draw_plots
from chaos.style import STYLE

_COUNTS: Final = (
    ("sent", False),
    ("acknowledged", False),
    ("unknown", False),
    ("failed", False),
    ("delivered", False),
    ("redelivered", False),
    ("lost", True),
    ("phantom", True),
    ("corrupt", True),
    ("divergent", True),
)


def write_report(run_dir: Path) -> Path:
    """Write the report of a run and return its path.

    Works with whatever the run has: missing tables leave out their part. Errors: OSError if the
    page cannot be written.
    """
    data = load_run(run_dir)
    target = run_dir / "report" / "index.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    page = render_page(data, run_dir.name)
    target.write_text(page, encoding="utf-8", errors="backslashreplace")
    return target


def render_page(data: RunData, name: str) -> str:
    """Return the page as HTML text."""
    run_id = str(data.run.get("run_id") or name)
    parts = [
        _head(data, run_id),
        _counts(data),
        _checks(data),
        _faults(data),
        _failovers(data),
        _plots(data),
        _notes(data),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_e(_verdict_word(data))}: run {_e(run_id)}</title>"
        f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _e(value: object) -> str:
    return html.escape(str(value))


def _checked_result(data: RunData) -> dict[str, Any]:
    """Return what a person was told: of both checkers, or of the only one that looked."""
    return data.combined or data.spark or data.inprocess


def _verdict_word(data: RunData) -> str:
    checked = _checked_result(data)
    if checked.get("exit_code") == 3:
        return "valid, but the contract was exceeded"
    return str(checked.get("verdict") or "not checked")


def _head(data: RunData, run_id: str) -> str:
    word = _verdict_word(data)
    css = "exceeded" if "contract" in word else word.split(",")[0]
    facts = [f"run {run_id}"]
    facts += [
        f"{label} {data.run[key]}"
        for key, label in (("scenario", "scenario"), ("seed", "seed"), ("backend", "backend"))
        if data.run.get(key) is not None
    ]
    if data.run.get("mutant"):
        facts.append(f"planted fault in the broker: {data.run['mutant']}")
    reasons = _checked_result(data).get("reasons") or []
    lines = "".join(f"<li>{_e(reason)}</li>" for reason in reasons)
    stated = data.spark.get("contract", {}).get("stated") or data.run.get("contract") or {}
    promise = ", ".join(f"{key} {value}" for key, value in stated.items())
    return (
        f"<h1>{_e(' · '.join(facts))}</h1>"
        f'<div class="verdict {_e(css)}">{_e(word[:1].upper() + word[1:])}</div>'
        + (f"<ul>{lines}</ul>" if lines else "<p>Nothing acknowledged was lost.</p>"
           if word == "valid" else "")
        + (f'<p class="soft">Contract: {_e(promise)}</p>' if promise else "")
    )  # fmt: skip


def _counts(data: RunData) -> str:
    counts = data.inprocess.get("counts") or data.spark.get("counts") or {}
    cells = []
    for name, alarming in _COUNTS:
        value = counts.get(name)
        if value is not None:
            css = ' class="alarm"' if alarming and value else ""
            cells.append(f"<div><dt>{_e(name)}</dt><dd{css}>{value:,}</dd></div>")
    return f"<dl>{''.join(cells)}</dl>" if cells else ""


def _checks(data: RunData) -> str:
    ours: dict[str, Any] = data.inprocess.get("checks") or {}
    theirs: dict[str, Any] = data.spark.get("checks") or {}
    checks = {**theirs, **ours}  # the words of the terminal, in its order
    if not checks:
        return "<h2>Checks</h2><p class=none>No checker has looked at this run yet.</p>"
    names = [*ours, *(name for name in theirs if name not in ours)]
    rows = "".join(
        f"<tr><td><b>{_e(name)}</b></td><td>{_e(checks[name].get('title', ''))}</td>"
        f"{_said(ours.get(name))}{_said(theirs.get(name))}"
        f"<td class=n>{checks[name].get('count', 0):,}</td>"
        f"<td class=soft>{_e(checks[name].get('summary', ''))}</td></tr>"
        for name in names
    )
    head = "<tr><th>check<th><th>in process<th>Spark<th class=n>found<th>"
    evidence = "".join(
        _evidence(name, item)
        for name in names
        for item in _telling(theirs.get(name)) or _telling(ours.get(name))
    )
    shown = f"<h2>Evidence</h2>{evidence}" if evidence else ""
    return f"<h2>Checks</h2><div class=wide><table>{head}{rows}</table></div>{shown}"


def _said(check: dict[str, Any] | None) -> str:
    """Return the cell of one checker's word on a check; a dash if it does not have the check."""
    if check is None:
        return "<td class=none>-</td>"
    verdict = str(check.get("verdict", ""))
    return f'<td class="{_e("none" if verdict == "not checked" else verdict)}">{_e(verdict)}</td>'


def _telling(check: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the evidence of a check that did not pass."""
    found: list[dict[str, Any]] = (check or {}).get("evidence") or []
    return found if check is not None and check.get("verdict") != "valid" else []


def _evidence(name: str, item: dict[str, Any]) -> str:
    body = []
    for side, spot in (item.get("around") or {}).items():
        fields = ", ".join(f"{key} {value}" for key, value in spot.items())
        body.append(f"<li>delivered {_e(side)}: {_e(fields)}</li>")
    if item.get("presence"):
        cells = "".join(
            f"<tr><td><b>{_e(node)}</b></td><td><code>{_e(held)}</code></td></tr>"
            for node, held in item["presence"].items()
        )
        body.append(f"<li>on the replicas' disks<table>{cells}</table></li>")
    for row in item.get("rows") or ():
        fields = ", ".join(f"{key} {value}" for key, value in row.items() if value is not None)
        body.append(f"<li>{_e(fields)}</li>")
    if item.get("faults"):
        body.append(f"<li>faults in force: {_e('; '.join(map(str, item['faults'])))}</li>")
    text = f"<b>{_e(name)}</b> {_e(item.get('explain', item))}"
    return f"<details><summary>{text}</summary><ul>{''.join(body)}</ul></details>"


def _faults(data: RunData) -> str:
    if not data.faults:
        return (
            f"<h2>Faults</h2><p class=none>No fault is recorded in this run.</p>{_coverage(data)}"
        )
    took = [f for f in data.faults if f.effective]
    rows = "".join(_fault_row(fault) for fault in data.faults)
    return (
        f"<h2>Faults</h2><p class=soft>{len(took)} of {len(data.faults)} planned faults took "
        "effect, as their witnesses saw it; the others prove nothing and are not counted.</p>"
        "<div class=wide><table><tr><th>fault<th>what<th>target<th class=n>from<th class=n>to"
        "<th>status<th>witness<th>took effect<th class=n>sends in flight"
        f"{rows}</table></div>{_coverage(data)}"
    )


def _coverage(data: RunData) -> str:
    """Return a row for each kind of fault: how many were planned, and how many count (A47)."""
    told = data.run.get("coverage")
    planned = Counter(fault.kind for fault in data.faults)
    wanted = told if isinstance(told, dict) else dict.fromkeys(planned, 1)
    took = Counter(fault.kind for fault in data.faults if fault.effective)
    counts = Counter(f.kind for f in data.faults if f.effective and f.in_flight)
    if ANY in wanted:
        for counter in (planned, took, counts):
            counter[ANY] = counter.total()
    kinds = sorted(planned.keys() | {str(kind) for kind in wanted})
    if not kinds:
        return ""
    rows = "".join(_coverage_row(kind, planned, took, counts, wanted.get(kind)) for kind in kinds)
    return (
        "<h3>Coverage</h3><p class=soft>A fault counts if it took effect while sends were in "
        "flight.</p><div class=wide><table><tr><th>kind<th class=n>planned<th class=n>took effect"
        f"<th class=n>count<th class=n>wanted<th>{rows}</table></div>"
    )


def _coverage_row(
    kind: str, planned: Counter[str], took: Counter[str], counts: Counter[str], wanted: object
) -> str:
    least = wanted if isinstance(wanted, int) else 0
    word = "too few" if counts[kind] < least else ""
    return (
        f"<tr><td>{_e(kind)}</td><td class=n>{planned[kind]}</td><td class=n>{took[kind]}</td>"
        f"<td class=n>{counts[kind]}</td><td class=n>{least or ''}</td>"
        f'<td class="unknown">{word}</td></tr>'
    )


def _fault_row(fault: FaultRow) -> str:
    seen = fault.witness
    values = " → ".join(_number(seen.get(key)) for key in ("before", "during", "after"))
    witness = f"{seen.get('probe') or ''} {values}" if seen else "none"
    took = '<td class="valid">yes</td>' if fault.effective else '<td class="unknown">no</td>'
    return (
        f"<tr><td>{_e(fault.fault_id)}</td><td>{_e(fault.kind)}</td><td>{_e(fault.targets)}</td>"
        f"<td class=n>{_seconds(fault.start)}</td><td class=n>{_seconds(fault.end)}</td>"
        f"<td>{_e(fault.status)}</td><td class=soft>{_e(witness)}</td>{took}"
        f"<td class=n>{fault.in_flight:,}</td></tr>"
    )


def _failovers(data: RunData) -> str:
    if not data.failovers:
        return ""
    rows = "".join(
        f"<tr><td class=n>{_seconds(f.at)}</td><td>{_e(f.old)} → {_e(f.new)}</td>"
        f"<td class=n>{f.term}</td><td>{_e(f.cause or 'none recorded')}</td>"
        f"<td class=n>{f.leaderless_ms:,.0f} ms</td>"
        f"<td class=n>{'' if f.stall_ms is None else f'{f.stall_ms:,.0f} ms'}</td></tr>"
        for f in data.failovers
    )
    return (
        "<h2>Failovers</h2><p class=soft>From the fault (or the last sight of the old leader) to "
        "the first sight of the new one; and, as check A41 measures it, the longest time without "
        "an acknowledged send that touches the fault, from its beginning.</p>"
        "<div class=wide><table><tr><th class=n>at<th>leader<th class=n>term"
        f"<th>cause<th class=n>without leader<th class=n>no acknowledgement{rows}</table></div>"
    )


def _plots(data: RunData) -> str:
    drawn = "".join(
        f"<h3>{_e(title)}</h3><p class=soft>{_e(caption)}</p>{svg}"
        for title, caption, svg in draw_plots(data)
    )
    if not drawn:
        return ""
    return f"<h2>What happened</h2><p class=soft>Shaded: faults in force.</p>{drawn}"


def _notes(data: RunData) -> str:
    notes = [*data.notes, *(data.spark.get("problems") or [])]
    if not notes:
        return ""
    return f"<h2>Notes</h2><ul>{''.join(f'<li class=soft>{_e(n)}</li>' for n in notes)}</ul>"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _number(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    return "?" if value is None else str(value)
