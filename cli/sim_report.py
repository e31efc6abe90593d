"""What ``ledgermq sim`` does and prints: progress, verdicts, the files of a failure."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.say import say
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from mutants.planting import planted
from sim import together
from sim.campaign import RAFT, Case, Totals, campaign, plan_of
from sim.detect import SEEDS_MAX, Detection, bugs_of, known_seeds, measure, table
from sim.faults.plan import Plan, decode_plan, encode_plan
from sim.faults.switch import CONTROLLER
from sim.figures import measure_elections, measure_speed
from sim.lamport import draw_lamport
from sim.run import BROKEN, EXIT_CODES, Result, run_plan
from sim.shrink import Shrinker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mutants.planting import Mutant

EXIT_INTERRUPTED = 130
PROGRESS_RUNS = 25
PROGRESS_ELECTIONS = 250
GIT_TIMEOUT_S = 10


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a campaign is run."""

    jobs: int
    minutes: float | None
    overkill: bool
    mode: str
    """One of `sim.campaign.CHOICES`."""
    out: Path
    shrink: bool


class Printer:
    """Progress goes to stderr, results to stdout; as JSON only results are printed."""

    def __init__(self, *, as_json: bool, planted: str = "") -> None:
        self.as_json = as_json
        self.planted = planted
        """The option that plants the bug that is planted."""

    def say(self, text: str) -> None:
        """Tell how it goes."""
        say(text, err=True)

    def result(self, text: str, value: dict[str, Any]) -> None:
        """Print a result."""
        say(json.dumps(value, default=str) if self.as_json else text)


def draw_plan(seed: int, mode: str | None, *, overkill: bool) -> Plan:
    """Return the plan of a seed."""
    return plan_of(Case(seed, mode or RAFT), overkill=overkill)


def load(path: Path) -> Plan:
    """Return the plan in a file."""
    try:
        return decode_plan(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--plan") from error
    except (*NOT_DECODED, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--plan") from error


@contextlib.contextmanager
def bug(name: str | None, mode: str) -> Iterator[None]:
    """Have a bug planted while the block runs, none if there is no name."""
    if name is None:
        yield
        return
    _check_known(name, mode)
    with planted(bugs_of(mode)[name]):
        yield


def mode_of(plan: Plan) -> str:
    """Return the mode that a plan is about."""
    if plan.options.classic is not None:
        return plan.options.classic.mode
    return RAFT if plan.options.switch is None else CONTROLLER


def one(printer: Printer, plan: Plan, out: Path, *, trace: bool, shrink: bool) -> int:
    """Run one plan, and what follows if it fails; returns the exit code."""
    printer.say(f"seed {plan.seed}")
    result = run_plan(plan, trace_lines=trace)
    if trace:
        for line in result.lines:
            say(line, err=printer.as_json)
    printer.result(describe(result), as_row(result))
    if result.failed:
        _keep(printer, plan, result, out, shrink=shrink)
    printer.say(f"seed {plan.seed}: {result.verdict}")
    return EXIT_CODES[result.verdict]


def many(printer: Printer, seeds: Iterable[int], settings: Settings) -> int:
    """Run a campaign; returns the exit code."""
    span = f"{seeds.start}..{seeds.stop - 1}" if isinstance(seeds, range) else "from 1 on"
    build = _build()  # as it is now: a commit may follow while the runs go on
    printer.say(f"{build}, seeds {span}, {settings.jobs} at a time")

    failed: list[Case] = []

    def report(totals: Totals, case: Case, result: Result) -> None:
        if result.failed:
            failed.append(case)
            printer.say(describe(result))
        if totals.runs % PROGRESS_RUNS == 0:
            printer.say(f"seed {result.seed}: {totals.describe()}")

    totals = campaign(
        seeds,
        jobs=settings.jobs,
        minutes=settings.minutes,
        overkill=settings.overkill,
        mode=settings.mode,
        report=report,
    )
    for result in totals.failures[:1] if not totals.interrupted else ():
        plan = plan_of(failed[0], overkill=settings.overkill)
        _keep(printer, plan, result, settings.out, shrink=settings.shrink)
    quote = totals.quote(build, settings.jobs)
    row = asdict(totals) | {"failures": [as_row(result) for result in totals.failures]}
    row |= {"digest": totals.digest, "quote": quote}
    del row["digests"]
    printer.result(f"{totals.describe()}\n{_sums(totals)}\n{quote}", row)
    if failed:
        names = ", ".join(map(_seed_of, failed))
        printer.say(f"failed seeds: {names}; repeat one: ledgermq sim --seed N")
    if totals.interrupted:
        printer.say("interrupted: the result is that of the runs before")
        return EXIT_INTERRUPTED
    return totals.exit_code


def elections(printer: Printer, runs: int) -> int:
    """Measure elections; returns 0 if the aim is met."""
    printer.say(f"seeds 1..{runs}")

    def report(done: int) -> None:
        if done % PROGRESS_ELECTIONS == 0:
            printer.say(f"{done} of {runs}")

    figures = measure_elections(range(1, runs + 1), report)
    timeout_ms = figures["election_timeout_ms"]
    lines = [f"election timeout {timeout_ms} ms at most; time without a leader, virtual ms:"]
    worst = 0.0
    for name in ("kill", "power"):
        row = figures[name]
        assert isinstance(row, dict)
        lines.append(f"  after {name:6} " + "  ".join(f"{k} {v}" for k, v in row.items()))
        worst = max(worst, float(row.get("p99", 0.0)))
    assert isinstance(timeout_ms, int)
    meets = worst <= 2 * timeout_ms
    lines.append(f"p99 <= 2 x timeout: {'yes' if meets else 'no'}")
    printer.result("\n".join(lines), figures)
    return 0 if meets else 1


def bench(printer: Printer) -> int:
    """Measure the simulator; returns 0."""
    row = max((measure_speed(seed) for seed in (1, 2, 3)), key=lambda one: one["events_per_s"])
    text = (
        f"{row['events']:.0f} events in {row['wall_s']} s: {row['events_per_s']:,.0f} a second; "
        f"{row['virtual_s']:.0f} virtual seconds, {row['times_real_time']} times real time"
    )
    printer.result(text, row)
    return 0


def mutants(printer: Printer, name: str | None, seeds: range | None, jobs: int, mode: str) -> int:
    """Plant the bugs of a mode and count seeds until each is found; returns 0 if all are."""
    if name is not None:
        _check_known(name, mode)
    chosen = seeds or range(1, SEEDS_MAX + 1)
    names = sorted(bugs_of(mode)) if name is None else [name]
    printer.say(f"{len(names)} planted bugs, seeds {chosen[0]}..{chosen[-1]} each")

    def report(detection: Detection, is_final: bool) -> None:
        if is_final:
            printer.say(detection.describe())

    found = measure(
        names, seed_first=chosen[0], seeds_max=len(chosen), jobs=jobs, mode=mode, report=report
    )
    printer.result("\n".join(table(found)), {"known_seeds": json.loads(known_seeds(found))})
    return 0 if all(one.found for one in found) else 1


def bugs_of_file(printer: Printer, path: Path, seeds: range, jobs: int, mode: str) -> int:
    """Look for the bugs of a file in the plans of some seeds; returns 0 if all are shown."""
    try:
        bugs = {bug.name: bug for bug in together.load(path)}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bugs") from error
    printer.say(f"{len(bugs)} bugs of {path}, seeds {seeds[0]}..{seeds[-1]}, many at a time")

    def report(told: together.Told) -> None:
        for name, (case, outcome) in told.shown.items():
            printer.say(f"{name}: seed {_seed_of(case)}, {outcome.kind}, {outcome.oracle}")
        printer.say(f"seed {_seed_of(told.case)}: {told.left} left in part {told.part}")

    found = together.search(path, seeds, mode=mode, jobs=jobs, report=report)
    printer.result("\n".join(_shown(found, bugs)), asdict(found))
    if found.interrupted:
        printer.say("interrupted: the result is that of the plans before")
        return EXIT_INTERRUPTED
    if found.broken:
        printer.say(f"{found.broken} of {jobs} processes ended early: other bugs may show as well")
        return EXIT_CODES[BROKEN]
    failed = [name for name, shown in found.shown.items() if shown.outcome.kind == together.FAILED]
    return 0 if len(failed) == len(bugs) else 1


def _shown(found: together.Found, bugs: Mapping[str, Mutant]) -> list[str]:
    """Render the bugs of a file as the lines of a Markdown table, those that hide last."""
    lines = ["| bug | seed | found by | what it does wrong |", "|---|---|---|---|"]
    for name, (case, outcome) in sorted(found.shown.items(), key=lambda one: one[1].case):
        by = outcome.oracle if outcome.kind == together.FAILED else f"ended: {outcome.text}"
        lines.append(f"| {name} | {_seed_of(case)} | {by} | {bugs[name].breaks} |")
    lines += [
        f"| {name} | | not shown | {bug.breaks} |"
        for name, bug in bugs.items()
        if name not in found.shown
    ]
    return lines


def _check_known(name: str, mode: str) -> None:
    known = bugs_of(mode)
    if name not in known:
        raise typer.BadParameter(
            f"{name} is no planted bug of {mode}; there are {', '.join(sorted(known))}",
            param_hint="--mutant",
        )


def describe(result: Result) -> str:
    """Render a result for people."""
    head = f"seed {result.seed}: {result.verdict.upper()}"
    if result.oracle:
        head += f", {result.oracle}: {result.text}"
    elif result.text:
        head += f": {result.text}"
    counts = " ".join(f"{name}={value}" for name, value in result.counters.items())
    faults = _faults(result)
    return (
        f"{head}\n  {result.events} events, {result.virtual_ms / 1000:.1f} virtual s in "
        f"{result.wall_s:.2f} s, digest {result.digest}\n  clients: {counts}\n  faults: {faults}"
    )


def as_row(result: Result) -> dict[str, Any]:
    """Return a result without its trace, in JSON types."""
    row = asdict(result)
    del row["lines"]
    return row


def _seed_of(case: Case) -> str:
    """Return what repeats a run, behind ``--seed``."""
    return str(case.seed) if case.mode == RAFT else f"{case.seed} --mode {case.mode}"


def _build() -> str:
    """Return the version, and the commit where the code lies in its repository."""
    text = f"ledgermq {version('ledgermq')}"
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603  # a fixed command, no shell
            [*git, "--exclude=*"], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True
        )
        text += f" at {done.stdout.strip()}"
    return text


def _sums(totals: Totals) -> str:
    counts = " ".join(f"{name}={value}" for name, value in sorted(totals.counters.items()))
    return f"clients: {counts}\nfaults: {_faults(totals)}"


def _faults(of: Result | Totals) -> str:
    """Render the faults that took effect, and what else was planned."""
    took, idle = (
        " ".join(f"{name}={value}" for name, value in sorted(counts.items()))
        for counts in (of.faults, of.without_effect)
    )
    return (took or "none took effect") + (f"; without effect: {idle}" if idle else "")


def _keep(printer: Printer, plan: Plan, result: Result, out: Path, *, shrink: bool) -> None:
    """Write plan, trace and diagram of a failure, as far as the disk takes them."""
    try:
        _write(printer, plan, result, out / f"seed-{plan.seed}", shrink=shrink)
    except OSError as error:
        printer.say(f"cannot write plan, trace and diagram: {error}")


def _write(printer: Printer, plan: Plan, result: Result, directory: Path, *, shrink: bool) -> None:
    """Write the smallest plan that shrinking finds, and what it does."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "plan-full.json").write_bytes(encode_plan(plan))
    if shrink and result.oracle:
        printer.say(f"shrinking: {len(plan.events)} faults")
        shrunk = Shrinker(plan, result, report=printer.say).shrink()
        plan = shrunk.plan
        printer.say(f"{shrunk.runs} runs: {len(plan.events)} faults left")
        for event in plan.events:
            printer.say(f"  at {event.at_ms} ms: {event.spec}")
    last = run_plan(plan, trace_lines=True)
    (directory / "plan.json").write_bytes(encode_plan(plan))
    (directory / "trace.txt").write_text("\n".join(last.lines) + "\n")
    title = f"seed {plan.seed}: {last.oracle} {last.text}"[:180]
    (directory / "lamport.svg").write_text(draw_lamport(last.lines, title=title))
    printer.say(f"plan, trace and diagram are in {directory}")
    printer.say(f"repeat: ledgermq sim --plan {directory / 'plan.json'}{printer.planted}")
