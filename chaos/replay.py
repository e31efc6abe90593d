"""A recorded run again: its scenario as it was, its seed and its settings, from RUN/run.json.

The plan of a run is in its record, fully expanded: a scenario file that has changed since, or is
not there any more, makes no difference. The choices are the same; the timing of a live run is not.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from chaos.scenario import FLUSH, Scenario

OF_RECORD: Final = ("seed", "backend", "mutant", "mode", "flush")
"""Options that a replay takes from the record."""
OF_PLAN: Final = ("seconds", "rate", "workload")
"""Options of which the recorded plan is made already."""
_WORDS: Final = {"mutant": "break"}


class NoPlan(Exception):  # noqa: N818 - it says what is the matter
    """There is no run of ours to repeat; the message says why."""


def about_run(run: Path) -> dict[str, Any]:
    """Return the content of RUN/run.json. Errors: `NoPlan`."""
    try:
        about = json.loads((run / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise NoPlan(f"{run} is no recorded run of ours: run.json: {error}") from error
    if not isinstance(about, dict) or not isinstance(about.get("plan"), dict):
        raise NoPlan(f"{run / 'run.json'} has no plan")
    return about


def scenario_of(about: dict[str, Any]) -> Scenario:
    """Return the scenario of a run as it was run. Errors: `NoPlan`."""
    try:
        return msgspec.convert(about["plan"], Scenario)
    except msgspec.ValidationError as error:
        what = "its plan is not one of this version"
        raise NoPlan(f"{what}: {error}") from error


def not_taken(given: Mapping[str, Any], settled: Mapping[str, Any]) -> list[str]:
    """Return a line for each option that was given and that the record of the run overrules.

    ``given``: the options that somebody wrote, by name; ``settled``: what a replay takes of them.
    """
    found = []
    for name, value in given.items():
        option = f"--{_WORDS.get(name, name)} {value}"
        if name in OF_PLAN:
            found.append(f"{option} is not taken: the run is made again by its recorded plan")
        elif name in OF_RECORD and value != settled[name]:
            told = settled[name] if settled[name] is not None else "none"
            found.append(f"{option} is not taken: the record says {told}")
    return found


def settle(options: argparse.Namespace, about: dict[str, Any], scenario: Scenario) -> None:
    """Put the settings of a run into the options of a new one; an --out stays as it is.

    Errors: `NoPlan` for a record without them.
    """
    flushes = {long: short for short, long in FLUSH.items()}
    try:
        options.seed = int(about["seed"])
        options.backend = str(about["backend"])
        options.mutant = about["mutant"]
        options.mode = scenario.mode
        options.flush = flushes[scenario.flush]
    except (KeyError, TypeError, ValueError) as error:
        raise NoPlan(f"the run's record lacks {error}") from error
