"""Two runs side by side: verdicts, counts, rates, faults, and what each check said differently."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from chaos.campaign.directory import read_run
from chaos.campaign.outcome import count_faults
from chaos.replay import NoPlan

Row = tuple[str, str, str]
LOAD: Final = ("warmup", "baseline", "main", "heal", "quiesce")
"""Phases in which producers send."""
_SETTINGS: Final = ("scenario", "seed", "mode", "backend", "mutant")


def compared(one: Path, other: Path) -> list[tuple[str, list[Row]]]:
    """Return what to show of two runs: headings, each with rows of name and two values.

    Errors: `NoPlan` if one of them was not judged, or its files say what no run of ours says.
    """
    sides = [_side(run) for run in (one, other)]
    parts = [_settings, _verdicts, _counts, _rates, _faults]
    try:
        told = [(part.__name__.strip("_"), [part(side) for side in sides]) for part in parts]
        checks = list(_checks(sides))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise NoPlan(f"{one} or {other}: run.json or verdict is none of ours: {what}") from error
    return [*((title, _rows(of_both)) for title, of_both in told), ("checks that differ", checks)]


def tables(parts: Sequence[tuple[str, list[Row]]], names: tuple[str, str]) -> Iterator[Table]:
    """Yield the tables that a person sees; what differs stands out."""
    for title, rows in parts:
        if not rows:
            continue
        table = Table(title=title, title_justify="left", pad_edge=False)
        table.add_column("")
        for name in names:
            table.add_column(Text(name), justify="right")
        for name, left, right in rows:
            style = "" if left == right else "bold"
            table.add_row(Text(name), Text(left, style=style), Text(right, style=style))
        yield table


def _side(run: Path) -> dict[str, Any]:
    files, faults = read_run(run)
    if not files["inprocess"]:
        raise NoPlan(f"{run} was not judged: ledgermq chaos check {run} does that")
    return files | {"faults": faults}


def _rows(sides: Sequence[Mapping[str, str]]) -> list[Row]:
    names = dict.fromkeys(name for side in sides for name in side)
    left, right = sides
    return [(str(n), str(left.get(n, "-")), str(right.get(n, "-"))) for n in names]


def _settings(side: Mapping[str, Any]) -> dict[str, str]:
    run = side["run"]
    told = {name: str(run.get(name)) for name in _SETTINGS if run.get(name) is not None}
    return told | {"flush": str(run.get("contract", {}).get("flush", "-"))}


def _verdicts(side: Mapping[str, Any]) -> dict[str, str]:
    local = side["inprocess"]
    judged = side["judgement"] or local
    told = {"verdict": judged["verdict"], "exit code": str(judged.get("exit_code", "-"))}
    told["in process"] = local["verdict"]
    told["on Spark"] = (side["results"] or {}).get("verdict", "-")
    return told


def _counts(side: Mapping[str, Any]) -> dict[str, str]:
    counts = side["inprocess"]["counts"]
    return {name.replace("_", " "): f"{number:,}" for name, number in counts.items()}


def _rates(side: Mapping[str, Any]) -> dict[str, str]:
    """Return what took how long, and how much there was a second."""
    phases = side["run"].get("phases", ())
    took = {str(one["name"]): (one["t1"] - one["t0"]) / 1e9 for one in phases}
    counts, checks = side["inprocess"]["counts"], side["inprocess"]["checks"]
    told = {f"{name}, s": f"{seconds:.1f}" for name, seconds in took.items()}
    load_s = sum(took.get(name, 0.0) for name in LOAD)
    if load_s:
        for name in ("sent", "acknowledged", "delivered"):
            told[f"{name}, /s"] = f"{counts.get(name, 0) / load_s:.1f}"
    if counts.get("delivered"):
        share = counts.get("redelivered", 0) / counts["delivered"]
        told["redelivered, %"] = f"{100 * share:.2f}"
    for check, name in (("A41", "worst_ms"), ("A58", "elections")):
        value = checks.get(check, {}).get("details", {}).get(name)
        if value is not None:
            told[f"{check} {name.replace('_', ' ')}"] = f"{value:,.0f}"
    return told


def _faults(side: Mapping[str, Any]) -> dict[str, str]:
    return {
        kind: f"{seen.overlapped} of {seen.planned}"
        for kind, seen in count_faults(side["faults"], side["inprocess"]).items()
    }


def _checks(sides: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    both = [side["inprocess"]["checks"] for side in sides]
    for check in dict.fromkeys([*both[0], *both[1]]):
        found = [side.get(check, {}) for side in both]
        words = [f"{one.get('verdict', '-')} {one.get('count') or ''}".strip() for one in found]
        if words[0] != words[1]:
            title = found[0].get("title") or found[1].get("title")
            yield (f"{check} {title}", words[0], words[1])
