"""What a campaign consists of, and which run comes next. Pure.

The runs are numbered: seeds in turn, and for each seed every scenario, so that each scenario has
been tried once before any is tried twice. The number alone says which run it is; what has been
done already is a set of numbers. Nothing here knows of time but the seconds that it is told.

Source: spec/proof.md 4.4 (seeds).
"""

from collections.abc import Collection
from typing import Final

import msgspec

SEEDS_MAX: Final = 1_000_000
RUNS_MAX: Final = 100_000
SCENARIOS_MAX: Final = 200
WITHOUT_SPARK: Final = "--no-spark"
IN_CONTAINERS: Final = ("--backend", "docker")
FAILED_IN_A_ROW: Final = 3
"""After so many runs in a row that the harness could not make, something is wrong with it."""


class Seeds(msgspec.Struct, frozen=True):
    """The seeds ``first`` to ``last``, both of them included; None: without an end."""

    first: int = 1
    last: int | None = None

    def __str__(self) -> str:
        """Return what the command line takes."""
        return f"{self.first}.." + ("" if self.last is None else str(self.last))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a campaign: it does not change while it goes on, also not when it is resumed."""

    scenarios: tuple[str, ...]
    """Names, or paths of scenario files."""
    seeds: Seeds = Seeds()
    options: tuple[str, ...] = ()
    """Further options of each run, as ``ledgermq chaos run`` takes them."""
    in_containers: tuple[str, ...] = ()
    """Scenarios that come behind the others in each turn, on the docker backend."""

    @property
    def many(self) -> int:
        """How many runs a seed has."""
        return len(self.scenarios) + len(self.in_containers)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a campaign is wanted; None: no bound of this kind."""

    runs: int | None = None
    hours: float | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the number says its place, the rest what it is."""

    number: int
    scenario: str
    seed: int
    mutant: str | None = None
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return what a person calls its scenario: a name, also where it is a file."""
        return self.scenario.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")

    @property
    def words(self) -> str:
        """Return what a person calls it."""
        bug = f" with {self.mutant}" if self.mutant else ""
        return f"{self.title} seed {self.seed}{bug}{self.place}"

    @property
    def place(self) -> str:
        """Return where it runs, if that is not on processes, as the end of a phrase."""
        return " in containers" if IN_CONTAINERS[1] in self.options else ""

    @property
    def name(self) -> str:
        """Return the name of its directory: number, scenario, planted bug, seed."""
        bug = f"-{self.mutant}" if self.mutant else ""
        return f"{self.number:05d}-{self.title}{bug}-{self.seed}"


def parse_seeds(text: str) -> Seeds:
    """Return the seeds that a text names: ``7``, ``1..20``, ``5..``. Errors: ValueError."""
    first, dots, last = text.partition("..")
    try:
        begin = int(first)
        end = int(last) if last else None if dots else begin
    except ValueError:
        raise ValueError(f"{text!r} names no seeds; write 7, 1..20 or 5..") from None
    if not 0 <= begin <= SEEDS_MAX or (end is not None and not begin <= end <= SEEDS_MAX):
        raise ValueError(f"{text!r}: seeds are 0 to {SEEDS_MAX:,}, the lowest first")
    return Seeds(begin, end)


def job(settings: Settings, number: int) -> Job | None:
    """Return the run with a number, the first being 0; None behind the last."""
    turn, at = divmod(number, settings.many)
    seed = settings.seeds.first + turn
    last = SEEDS_MAX if settings.seeds.last is None else settings.seeds.last
    if seed > last:
        return None
    scenario = (*settings.scenarios, *settings.in_containers)[at]
    options = settings.options if at < len(settings.scenarios) else _boxed(settings.options)
    return Job(number=number, scenario=scenario, seed=seed, options=options)


def _boxed(options: tuple[str, ...]) -> tuple[str, ...]:
    return options if IN_CONTAINERS[1] in options else (*options, *IN_CONTAINERS)


def next_job(
    settings: Settings, bounds: Bounds, done: Collection[int], spent_s: float
) -> Job | None:
    """Return the run that comes next: the lowest number that is not ``done``; None: that is all.

    ``spent_s`` is what the runs took that are done. A run is begun as long as time is left.
    """
    if bounds.hours is not None and spent_s >= bounds.hours * 3600:
        return None
    number = next(n for n in range(len(done) + 1) if n not in done)
    if number >= (RUNS_MAX if bounds.runs is None else bounds.runs):
        return None
    return job(settings, number)


def total(settings: Settings, bounds: Bounds) -> int | None:
    """Return how many runs there will be; None if only the time decides."""
    numbers = [] if bounds.runs is None else [bounds.runs]
    if settings.seeds.last is not None:
        numbers.append((settings.seeds.last - settings.seeds.first + 1) * settings.many)
    return min(numbers, default=None)


def seconds_left(settings: Settings, bounds: Bounds, done: int, spent_s: float) -> float | None:
    """Return how long it will still take at the pace so far; None if nobody knows."""
    guesses = [] if bounds.hours is None else [bounds.hours * 3600 - spent_s]
    most = total(settings, bounds)
    if most is not None and done:
        guesses.append((most - done) * spent_s / done)
    return max(0.0, min(guesses)) if guesses else None
