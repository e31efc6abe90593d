"""A scenario as the text of a file that runs just so: what `chaos.scenarios.schema` reads back.

Pure. The timeline is written step by step (``steps``), as it is run: nothing is drawn again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from chaos.catalogue.contracts import RAFT
from chaos.scenario import FLUSH, WORKLOADS, Scenario, Step, Workload

_USUAL: Final = Step(do="look")
_PHASES: Final = ("warmup", "baseline", "quiesce", "drain")


class NotAFile(Exception):  # noqa: N818 - it says what is the matter
    """The scenario is one that no file can say; the message says what of it."""


def text_of(scenario: Scenario, hunts: str) -> str:
    """Return the text of a file for a scenario. Errors: `NotAFile`."""
    cluster: dict[str, Any] = {"flush": _flush(scenario.flush)}
    cluster |= {"sealed": True} if scenario.sealed else {}
    cluster |= {"mode": scenario.mode} if scenario.mode != RAFT else {}
    cluster |= {"settings": dict(scenario.settings)} if scenario.settings else {}
    load = load_of(scenario.workload)
    if scenario.crash_consumer_s is not None:
        load["crash_consumer"] = scenario.crash_consumer_s
    phases = {name: getattr(scenario, f"{name}_s") for name in _PHASES}
    phases["main"] = scenario.timeline_s_max
    lines = [f"name: {scenario.name}", f"hunts: {_value(hunts)}", f"cluster: {_value(cluster)}",
             f"workload: {_value(load)}", f"phases: {_value(phases)}", "steps:",
             *(f"  - {_value(dict(_step(step)))}" for step in scenario.timeline),
             f"coverage: {_value(dict(scenario.coverage))}"]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def load_of(load: Workload) -> dict[str, Any]:
    """Return a workload as a file says it: its kind, and what differs from that.

    Errors: `NotAFile` for a workload that is no kind of ours.
    """
    for kind, usual in WORKLOADS.items():
        joiner = None if load.joiner_s is None else usual.joiner_s
        fail_every = usual.fail_every if load.fail_every else 0
        like = replace(
            usual,
            rate=load.rate,
            producers=load.producers,
            consumers=load.consumers,
            hostile=load.hostile,
            joiner_s=joiner,
            fail_every=fail_every,
        )
        if like != load:
            continue
        told: dict[str, Any] = {"kind": kind, "rate": load.rate}
        for name in ("producers", "consumers", "hostile"):
            if getattr(load, name) != getattr(usual, name):
                told[name] = getattr(load, name)
        left_out = {"joiner": joiner is None, "refusals": not fail_every}
        return told | {name: False for name, is_so in left_out.items() if is_so}
    raise NotAFile("its workload is not one that a file can name")


def _flush(word: str) -> str:
    return next(short for short, long in FLUSH.items() if long == word)


def _step(step: Step) -> Iterator[tuple[str, Any]]:
    yield "do", step.do
    for key in ("name", "kind", "what"):
        if value := getattr(step, key):
            yield key, value
    if step.targets:
        yield "target", list(step.targets)
    if step.after_s != _USUAL.after_s:
        yield "after", step.after_s
    if step.within_s != _USUAL.within_s:
        yield "within", step.within_s
    if step.parameters:
        yield "with", dict(step.parameters)


def _value(value: object) -> str:
    """Return a value as YAML in one line; texts are quoted, keys are plain words."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
