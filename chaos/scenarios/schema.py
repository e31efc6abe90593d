"""What may stand in a scenario file, checked line by line before anything starts.

The result is plain data; times are in seconds. Every complaint names file, line and what to do.
What each part means: docs/chaos.md. Knows the kinds of the nemesis, no cluster.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.catalogue.contracts import MODES, RAFT
from chaos.catalogue.faults import ANY
from chaos.nemesis.kinds import FAULTS, ROLES
from chaos.scenario import FLUSH, WORKLOADS, Step
from chaos.scenarios.document import BYTES_MAX, Node, Unreadable, read

TIMEOUTS_S: Final[Mapping[str, float]] = {
    "heartbeat": 0.1, "election": 1.0, "disk_hang": 3.0, "send": 3.0,
}  # fmt: skip
"""What holds may be relative to, in seconds: how often a leader is heard, after how long without at
most somebody stands for election, when a disk counts as hung, how long a send is tried."""
SECONDS_MAX: Final = 3_600.0
MAIN_MAX_S: Final = 86_400.0
"""The main phase, and what comes at a second of it: a run of many rounds is written down, too."""
ENTRIES_MAX: Final = 200
ROUNDS_MAX: Final = 200
CONDITIONS: Final = ("healthy", "acks", "leader_changed")
STEPS: Final = ("look", "start", "stop", "switch", "await")
AWAITED: Final = ("leader", "acks", "healthy", "at", "time")
STEPS_MAX: Final = 5_000
CLIENTS_MAX: Final = 16
_SETTINGS_MAX: Final = 50


class WrongScenario(Exception):  # noqa: N818 - it says what is the matter
    """A scenario file cannot be used: file, line, what is wrong, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault of an entry."""

    kind: str
    targets: tuple[str, ...]
    parameters: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Faults that are applied together, in order, and lifted together, last first."""

    faults: tuple[Planned, ...]
    at_s: float | None = None
    """Seconds since the main phase began; None: once what is before it is over."""
    when: str = "healthy"
    """What is waited for first."""
    after_s: float = 0.5
    hold_s: float = 3.0
    overlap: bool = False
    """Whether it lasts until the faults of the next entry are lifted."""
    then: str = "healthy"
    """What is waited for once they are lifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A package of random faults: one kind, whom it may hit, how often beside the others."""

    kind: str
    weight: float
    targets: tuple[tuple[str, ...], ...]
    parameters: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Faults that are drawn by the seed, one after the other."""

    rounds: int
    gap_s: tuple[float, float]
    hold_s: tuple[float, float]
    packages: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A scenario file."""

    name: str
    hunts: str
    flush: str | None = None
    sealed: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    mode: str = RAFT
    workload: str = "plain"
    rate: float = 200.0
    load: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the `Workload`."""
    crash_consumer_s: float | None = None
    steps: tuple[Step, ...] = ()
    """A timeline step by step, in place of entries."""
    phases: Mapping[str, float] = field(default_factory=dict)
    timeline: tuple[Entry, ...] = ()
    random: Draw | None = None
    coverage: Mapping[str, int] | None = None
    """Least number of effective faults by kind; None: one of each kind of the timeline."""


class _Reader:
    """Takes nodes apart; every complaint ends up as `WrongScenario`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def wrong(self, line: int, what: str, todo: str) -> WrongScenario:
        return WrongScenario(f"{self.path}:{line}: {what}; {todo}")

    def table(
        self, node: Node, known: Collection[str], needed: Collection[str] = ()
    ) -> dict[str, Node]:
        if not isinstance(node.value, dict):
            raise self.wrong(node.line, "keys were expected", f"there are: {', '.join(known)}")
        for name, inner in node.value.items():
            if name not in known:
                todo = f"take it out, or use one of: {', '.join(known)}"
                raise self.wrong(inner.line, f"nothing is called {name!r} here", todo)
        for name in needed:
            if name not in node.value:
                raise self.wrong(node.line, f"{name!r} is missing", "add it")
        return node.value

    def words(self, node: Node) -> tuple[str, ...]:
        items = node.value if isinstance(node.value, list) else [node]
        return tuple(self.text(item) for item in items)

    def items(self, node: Node, most: int) -> list[Node]:
        if not isinstance(node.value, list) or not 0 < len(node.value) <= most:
            raise self.wrong(node.line, "a list was expected", f"give 1 to {most} items")
        return node.value

    def text(self, node: Node) -> str:
        if not isinstance(node.value, str) or not node.value:
            raise self.wrong(node.line, f"{node.plain()!r} is no text", "write a word")
        return node.value

    def one_of(self, node: Node, words: Collection[str]) -> str:
        word = self.text(node)
        if word not in words:
            raise self.wrong(node.line, f"{word!r} is not known", f"use one of: {', '.join(words)}")
        return word

    def number(self, node: Node, low: float, high: float) -> float:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(node.line, f"{node.plain()!r} is not a number", f"{low:g} to {high:g}")
        if not low <= value <= high:
            raise self.wrong(node.line, f"{value} is out of range", f"{low:g} to {high:g}")
        return float(value)

    def flag(self, node: Node) -> bool:
        if not isinstance(node.value, bool):
            raise self.wrong(node.line, f"{node.plain()!r} is neither", "write true or false")
        return node.value

    def pair(self, node: Node, high: float) -> tuple[float, float]:
        items = node.value if isinstance(node.value, list) else [node, node]
        if len(items) != 2:
            raise self.wrong(node.line, "two times were expected", "write [least, most]")
        low, most = self.seconds(items[0], high), self.seconds(items[1], high)
        if low > most:
            raise self.wrong(node.line, f"{low:g} is more than {most:g}", "write [least, most]")
        return low, most

    def seconds(self, node: Node, high: float = SECONDS_MAX) -> float:
        """A number of seconds, or ``{times: 1.2, of: election}``."""
        if not isinstance(node.value, dict):
            return self.number(node, 0, high)
        found = self.table(node, ("times", "of"), ("times", "of"))
        length = TIMEOUTS_S[self.one_of(found["of"], TIMEOUTS_S)]
        return min(high, self.number(found["times"], 0.01, 100) * length)


def load(path: Path) -> Plan:
    """Return the scenario of a file. Errors: WrongScenario."""
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1).decode()  # what is longer is refused, not read
    except (OSError, ValueError) as error:
        raise WrongScenario(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, path: str) -> Plan:
    """Return the scenario of a text; ``path`` is for complaints. Errors: WrongScenario."""
    reader = _Reader(path)
    try:
        root = read(text)
    except Unreadable as error:
        raise reader.wrong(error.line, error.what, "docs/chaos.md shows how to write it") from error
    parts = ("name", "hunts", "cluster", "workload", "phases", "timeline", "random", "coverage")
    found = reader.table(root, (*parts, "steps"), ("name", "hunts"))
    if not found.keys() & {"timeline", "random", "steps"}:
        raise reader.wrong(root.line, "there are no faults", "add a timeline, or random")
    if "steps" in found and found.keys() & {"timeline", "random"}:
        todo = "take it out, or the timeline and random"
        raise reader.wrong(found["steps"].line, "steps stand alone", todo)
    made: dict[str, Any] = {
        "name": reader.text(found["name"]),
        "hunts": reader.text(found["hunts"]),
    }
    readers: dict[str, Callable[[_Reader, Node], dict[str, Any]]] = {
        "cluster": _cluster, "workload": _workload, "phases": _phases, "timeline": _timeline,
        "random": _random, "coverage": _coverage, "steps": _steps,
    }  # fmt: skip
    for name, part in readers.items():
        if name in found:
            made |= part(reader, found[name])
    plan = Plan(**made)
    if lacking := kinds_without(plan, plan.mode):
        line = found["cluster"].line if "cluster" in found else root.line
        todo = "take it out, or set cluster: mode to one of: " + ", ".join(FAULTS[lacking[0]].modes)
        raise reader.wrong(line, f"{plan.mode} has nothing for {lacking[0]}", todo)
    return plan


def kinds_without(plan: Plan, mode: str) -> list[str]:
    """Return the kinds of faults of a plan to which a mode has nothing that they are done to."""
    kinds = {fault.kind for entry in plan.timeline for fault in entry.faults}
    kinds |= {step.kind for step in plan.steps if step.kind}
    kinds |= {choice.kind for choice in plan.random.packages} if plan.random else set()
    return sorted(kind for kind in kinds if mode not in FAULTS[kind].modes)


def _cluster(reader: _Reader, node: Node) -> dict[str, Any]:
    found = reader.table(node, ("flush", "sealed", "settings", "mode"))
    made: dict[str, Any] = {}
    if "mode" in found:
        made["mode"] = reader.one_of(found["mode"], MODES)
    if "flush" in found:
        made["flush"] = reader.one_of(found["flush"], FLUSH)
    if "sealed" in found:
        made["sealed"] = reader.flag(found["sealed"])
    if "settings" in found:
        table = found["settings"].value
        if not isinstance(table, dict) or len(table) > _SETTINGS_MAX:
            what = f"at most {_SETTINGS_MAX} settings were expected"
            raise reader.wrong(found["settings"].line, what, "write name: value")
        made["settings"] = {name: _setting(reader, value) for name, value in table.items()}
    return made


def _setting(reader: _Reader, node: Node) -> str:
    value = node.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float) or "\n" in str(value):
        raise reader.wrong(node.line, "a setting has one value", "write name: value")
    return str(value)


def _workload(reader: _Reader, node: Node) -> dict[str, Any]:
    whole, flags = ("producers", "consumers"), ("hostile", "joiner", "refusals")
    found = reader.table(node, ("kind", "rate", "crash_consumer", *whole, *flags))
    made: dict[str, Any] = {}
    if "kind" in found:
        made["workload"] = reader.one_of(found["kind"], WORKLOADS)
    if "rate" in found:
        made["rate"] = reader.number(found["rate"], 1, 5_000)
    if "crash_consumer" in found:
        made["crash_consumer_s"] = reader.seconds(found["crash_consumer"])
    load: dict[str, Any] = {
        name: int(reader.number(found[name], 1, CLIENTS_MAX)) for name in whole if name in found
    }
    if "hostile" in found:
        load["hostile"] = reader.flag(found["hostile"])
    if "joiner" in found and not reader.flag(found["joiner"]):
        load["joiner_s"] = None
    if "refusals" in found and not reader.flag(found["refusals"]):
        load["fail_every"] = 0
    return made | {"load": load}


def _phases(reader: _Reader, node: Node) -> dict[str, Any]:
    found = reader.table(node, ("warmup", "baseline", "main", "quiesce", "drain"))
    high = {"main": MAIN_MAX_S}
    phases = {n: reader.seconds(value, high.get(n, SECONDS_MAX)) for n, value in found.items()}
    return {"phases": phases}


def _timeline(reader: _Reader, node: Node) -> dict[str, Any]:
    entries = [_entry(reader, item) for item in reader.items(node, ENTRIES_MAX)]
    last = 0.0
    for entry, item in zip(entries, reader.items(node, ENTRIES_MAX), strict=True):
        if entry.at_s is not None and entry.at_s < last:
            raise reader.wrong(item.line, f"at {entry.at_s:g} is before {last:g}", "put it earlier")
        last = max(last, entry.at_s or 0.0)
    if entries[-1].overlap:
        line = reader.items(node, ENTRIES_MAX)[-1].line
        raise reader.wrong(line, "nothing comes behind it to overlap with", "take overlap out")
    return {"timeline": tuple(entries)}


def _entry(reader: _Reader, node: Node) -> Entry:
    known = ("at", "when", "after", "do", "hold", "overlap", "then")
    found = reader.table(node, known, ("do",))
    if "at" in found and "when" in found:
        raise reader.wrong(found["at"].line, "an entry has a time or a condition", "take one out")
    made: dict[str, Any] = {"faults": tuple(_faults(reader, found["do"]))}
    for name, field_name in (("at", "at_s"), ("after", "after_s"), ("hold", "hold_s")):
        if name in found:
            made[field_name] = reader.seconds(found[name])
    for name in ("when", "then"):
        if name in found:
            made[name] = reader.one_of(found[name], CONDITIONS)
    if "overlap" in found:
        made["overlap"] = reader.flag(found["overlap"])
    return Entry(**made)


def _steps(reader: _Reader, node: Node) -> dict[str, Any]:
    """``- {do: start, name: 1-kill, kind: kill, target: leader, after: 0.5}``, and so on."""
    steps: list[Step] = []
    started: set[str] = set()
    for item in reader.items(node, STEPS_MAX):
        step = _step(reader, item)
        if step.do == "stop" and step.name not in started:
            raise reader.wrong(item.line, f"{step.name!r} was not started", "start it before")
        if step.do == "start" and step.name in started:
            raise reader.wrong(item.line, f"{step.name!r} is started twice", "name it otherwise")
        started |= {step.name} if step.do == "start" else set()
        steps.append(step)
    return {"steps": tuple(steps)}


def _step(reader: _Reader, node: Node) -> Step:
    known = ("do", "name", "kind", "target", "what", "after", "within", "with")
    found = reader.table(node, known, ("do",))
    do = reader.one_of(found["do"], STEPS)
    needed = {"start": ("name", "kind"), "stop": ("name",), "switch": ("target",)}
    reader.table(node, known, needed.get(do, ("what",) if do == "await" else ()))
    made: dict[str, Any] = {}
    if "name" in found:
        made["name"] = reader.text(found["name"])
    if "what" in found:
        made["what"] = reader.one_of(found["what"], ("now",) if do == "look" else AWAITED)
    if "after" in found:
        made["after_s"] = reader.seconds(found["after"])
    if "within" in found:
        high = MAIN_MAX_S if made.get("what") == "at" else SECONDS_MAX
        made["within_s"] = reader.seconds(found["within"], high)
    if do == "start":
        given = reader.table(found["with"], tuple(FAULTS[kind].parameters)) if (
            (kind := reader.text(found["kind"])) in FAULTS and "with" in found
        ) else {}  # fmt: skip
        inner = {"target": found["target"]} if "target" in found else {}
        planned = _planned(reader, kind, Node(node.line, inner | given), node.line)
        made |= {"kind": kind, "targets": planned.targets, "parameters": planned.parameters}
    elif "target" in found:
        made["targets"] = reader.words(found["target"])
    return Step(do=do, **made)


def _faults(reader: _Reader, node: Node) -> list[Planned]:
    return [_fault(reader, item) for item in reader.items(node, 10)]


def _fault(reader: _Reader, node: Node) -> Planned:
    """``kind: role``, ``kind: [roles]``, or ``kind: {target: ..., parameter: ...}``."""
    if isinstance(node.value, str):  # a kind that needs no target
        return _planned(reader, node.value, Node(node.line, {}), node.line)
    if not isinstance(node.value, dict) or len(node.value) != 1:
        raise reader.wrong(node.line, "one fault was expected", "write - kind: target")
    ((kind, inner),) = node.value.items()
    return _planned(reader, kind, inner, inner.line)


def _planned(reader: _Reader, kind: str, node: Node, line: int) -> Planned:
    if kind not in FAULTS:
        raise reader.wrong(line, f"no fault is called {kind!r}", f"there are: {', '.join(FAULTS)}")
    if isinstance(node.value, dict):
        given = {name: inner.plain() for name, inner in node.value.items() if name != "target"}
        target = node.value.get("target")
    else:
        given, target = {}, node
    targets = () if target is None else reader.words(target)
    least, most = FAULTS[kind].targets
    if not least <= len(targets) <= most:
        many = f"{least}" if least == most else f"{least} to {most}"
        raise reader.wrong(line, f"{kind} has {len(targets)} targets", f"give {many}")
    for word in targets:
        if word not in ROLES or (word == "all" and len(targets) > 1):
            todo = f"use one of: {', '.join(ROLES)}; all stands alone"
            raise reader.wrong(line, f"{word!r} is no target of {kind}", todo)
        if word != "any" and targets.count(word) > 1:
            raise reader.wrong(line, f"{kind} has {word} as a target twice", "name another one")
    try:
        complete = FAULTS[kind].complete(given)
    except ValueError as error:
        raise reader.wrong(line, f"{kind}: {error}", "change it") from error
    return Planned(kind=kind, targets=targets, parameters={name: complete[name] for name in given})


def _random(reader: _Reader, node: Node) -> dict[str, Any]:
    found = reader.table(node, ("rounds", "every", "hold", "packages"), ("packages",))
    table = found["packages"].value
    if not isinstance(table, dict) or not table:
        raise reader.wrong(found["packages"].line, "packages were expected", "write kind: weight")
    packages = tuple(_choice(reader, kind, inner) for kind, inner in table.items())
    made: dict[str, Any] = {"rounds": 5, "gap_s": (1.0, 4.0), "hold_s": (1.0, 4.0)}
    if "rounds" in found:
        made["rounds"] = int(reader.number(found["rounds"], 1, ROUNDS_MAX))
    if "every" in found:
        made["gap_s"] = reader.pair(found["every"], 600)
    if "hold" in found:
        made["hold_s"] = reader.pair(found["hold"], 600)
    return {"random": Draw(packages=packages, **made)}


def _choice(reader: _Reader, kind: str, node: Node) -> Choice:
    """``kind: weight``, or ``kind: {weight: ..., target: [...], parameter: ...}``."""
    if not isinstance(node.value, dict):
        node = Node(node.line, {"weight": node})
    table = node.value
    assert isinstance(table, dict)
    weight = reader.number(table["weight"], 0.01, 1_000) if "weight" in table else 1.0
    given = {name: inner for name, inner in table.items() if name not in {"weight", "target"}}
    least = FAULTS[kind].targets[0] if kind in FAULTS else 1
    roles = reader.words(table["target"]) if "target" in table else _usual(least)
    sets = [(role,) for role in roles] if least == 1 else [tuple(roles)] if least else [()]
    parameters: Mapping[str, float | str] = {}
    for roles_of_one in sets:
        target = {"target": Node(node.line, [Node(node.line, role) for role in roles_of_one])}
        planned = _planned(reader, kind, Node(node.line, given | target), node.line)
        parameters = planned.parameters
    return Choice(kind=kind, weight=weight, targets=tuple(sets), parameters=parameters)


def _usual(least: int) -> tuple[str, ...]:
    """Return whom a random fault may hit if nobody says."""
    return ("leader", "follower") if least else ()


def _coverage(reader: _Reader, node: Node) -> dict[str, Any]:
    found = reader.table(node, (ANY, *FAULTS))
    return {"coverage": {name: int(reader.number(n, 0, 10_000)) for name, n in found.items()}}
