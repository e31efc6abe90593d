"""The verdict on a terminal: counts, faults with their witnesses, failover times, evidence."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.catalogue.faults import find
from chaos.checker.compose import EXIT_EXCEEDED
from chaos.history.columns import Row
from chaos.verdict import CombinedVerdict

STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}
EVIDENCE_SHOWN = 5
_WORDS = {
    "sent": "messages that producers tried to send",
    "acknowledged": "the broker said: stored",
    "unknown": "no answer, or one that proves nothing (timeout, lost connection)",
    "failed": "definitely not stored",
    "delivered": "different messages that the consumer group got",
    "redelivered": "deliveries beyond the first (allowed: at least once)",
    "lost": "acknowledged, never delivered",
    "phantom": "delivered, never sent",
    "corrupt": "delivered with other bytes than were sent",
    "aborted": "definitely refused, yet delivered",
    "duplicates": "in the log more often than attempts were made",
    "inconsistent_offsets": "places where observers saw different messages",
    "divergent": "committed log entries on which replicas differ",
    "log_entries": "entries compared in the replicas' logs",
}


def show_verdict(
    console: Console, combined: CombinedVerdict, faults: Sequence[Row], run: Path
) -> None:
    """Print everything that a person wants to know about a run."""
    console.print(counts_table(combined))
    if faults:
        console.print(faults_table(combined, faults))
        console.print(coverage_table(combined, faults))
    failover = combined.local["checks"]["A41"]["summary"]
    console.print(f"No acknowledgements around each kill for: {failover}", soft_wrap=True)
    console.print(checks_table(combined))
    show_evidence(console, combined)
    word = combined.verdict.upper()
    if combined.exit_code == EXIT_EXCEEDED:
        word += ", BUT THE CONTRACT WAS EXCEEDED"
    line = Text("Verdict: ") + Text(word, style=STYLES[combined.verdict])
    console.print(line)
    for reason in combined.reasons:
        console.print(Text(f"  {reason}"), soft_wrap=True)
    console.print(Text(f"Run: {run}"), soft_wrap=True)


def counts_table(combined: CombinedVerdict) -> Table:
    """Return the headline numbers with what they mean."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, words in _WORDS.items():
        number = combined.local["counts"].get(name, "-")
        table.add_row(f"{number:>8}", name.replace("_", " "), Text(words, style="dim"))
    return table


def faults_table(combined: CombinedVerdict, faults: Sequence[Row]) -> Table:
    """Return the planned faults and whether each is known to have had an effect."""
    about = combined.local["checks"]["A47"]["details"].get("faults", ())
    flying = {item["fault_id"]: item["in_flight"] for item in about}
    table = Table(title="Faults", title_justify="left", pad_edge=False)
    for name in ("fault", "on", "seconds", "sends in flight", "witness"):
        right = name in {"seconds", "sends in flight"}
        table.add_column(name, justify="right" if right else "left")
    for fault in faults:
        seconds = "-"
        if fault["t_on1"] and fault["t_off0"]:
            seconds = f"{(fault['t_off0'] - fault['t_on1']) / 1e9:.1f}"
        table.add_row(
            f"{fault['kind']} ({fault['fault_id']})",
            " - ".join(fault["targets"] or ()),
            seconds,
            str(flying.get(fault["fault_id"], 0)),
            _witness(fault),
        )
    return table


def coverage_table(combined: CombinedVerdict, faults: Sequence[Row]) -> Table:
    """Return, by kind, how many faults were planned and took effect while sends were in flight."""
    details = combined.local["checks"]["A47"]["details"]
    about = {item["fault_id"]: item for item in details.get("faults", ())}
    table = Table(title="Coverage", title_justify="left", pad_edge=False)
    table.add_column("kind")
    for name in ("planned", "took effect", "sends in flight"):
        table.add_column(name, justify="right")
    for kind in sorted({str(fault["kind"]) for fault in faults}):
        mine = [fault for fault in faults if fault["kind"] == kind]
        seen = [about.get(fault["fault_id"], {}) for fault in mine]
        counted = sum(bool(item.get("counts")) for item in seen)
        flying = sum(int(item.get("in_flight", 0)) for item in seen if item.get("counts"))
        style = "green" if counted == len(mine) else "yellow"
        row = (str(len(mine)), Text(str(counted), style=style), str(flying))
        table.add_row(kind, *row)
    return table


def _witness(fault: Row) -> Text:
    witness = fault.get("witness")
    if fault["status"] in {"planned", "skipped", "failed"} or not witness:
        return Text(str(fault["status"]), style="yellow")
    if not witness["effective"]:
        return Text("no effect seen: does not count", style="yellow")
    kind = find(fault["kind"])
    seen = "took effect" if kind is None else kind.witness
    if kind is not None and kind.counts:
        seen = f"{witness['during'] or 0:.0f} {seen}"
    return Text(seen, style="green")


def checks_table(combined: CombinedVerdict) -> Table:
    """Return what each check said, of both checkers."""
    table = Table(title="Checks", title_justify="left", pad_edge=False)
    for name in ("check", "", "in process", "Spark", "found"):
        table.add_column(name)
    theirs = {} if combined.spark is None else combined.spark["checks"]
    for name, ours in combined.local["checks"].items():
        table.add_row(
            name,
            ours["title"],
            _styled(ours["verdict"]),
            _styled(theirs[name]["verdict"]) if name in theirs else Text("-", style="dim"),
            ours["summary"],
        )
    return table


def _styled(verdict: str) -> Text:
    return Text(verdict, style=STYLES.get(verdict, "dim").removeprefix("bold "))


def show_evidence(console: Console, combined: CombinedVerdict) -> None:
    """Print the first pieces of evidence of each check that failed."""
    for name, found in combined.local["checks"].items():
        if found["verdict"] != "invalid" and not (name == "A8" and found["count"]):
            continue
        console.print(Text(f"{name} {found['title']}: {found['count']}", style="bold red"))
        for item in found["evidence"][:EVIDENCE_SHOWN]:
            faults = f" (during {', '.join(item['faults'])})" if item.get("faults") else ""
            console.print(Text(f"  {item['explain']}{faults}"), soft_wrap=True)
