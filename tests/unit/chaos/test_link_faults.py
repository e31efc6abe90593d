"""Faults of links that change what passes: each where it takes no effect, or a lesser one.

The links here are counters that a table moves while the fault is on; the witness is the harness's
own code. What the proxy really does is in `tests/chaos/test_proxy.py`.
"""

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from chaos.backends.base import ClusterFailed, link_names, outer_link_names
from chaos.catalogue.faults import BY_NEMESIS
from chaos.catalogue.kinds import Target
from chaos.nemesis import links as link_module
from chaos.nemesis.base import Fault, Setting
from chaos.nemesis.journal import lift
from chaos.nemesis.kinds import FAULTS, Bounds, OneOf
from chaos.nemesis.shaping import AT_ONCE, PROOFS, command_of
from chaos.net.rules import Counters, rule_from
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

NODES = ("n0", "n1", "n2")
SERVERS = ("ns0", "ns1")
SHAPED = sorted(PROOFS)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(link_module, "AFTER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(link_module, "DOWN_TIMEOUT_S", 0.05)


@dataclass
class Wire:
    """Cluster, links and clock in one. ``while_on``: by how much counters of each lane grow."""

    sealed: bool = False
    while_on: dict[str, int] = field(default_factory=dict)
    ends: int = 0
    """Connections that end, and are made again, on each link."""
    resets: int = 0
    flaps: int = 0
    method: str = "proxy"
    nodes: tuple[str, ...] = NODES
    now: int = 0
    commands: list[tuple[str, tuple[str, ...], dict[str, Any]]] = field(default_factory=list)
    healed: list[tuple[str, ...]] = field(default_factory=list)
    stays_shut: bool = False
    state_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*link_names(NODES), *outer_link_names(NODES, SERVERS)]
        lane = {**Counters().snapshot(), "bytes": 100}
        self.states: dict[str, dict[str, Any]] = {
            name: {
                "forward": dict(lane), "backward": dict(lane), "accepted": 1, "flaps": 0,
                "resets": 0, "withholding": [],
            }
            for name in names
        }  # fmt: skip
        self.links = self

    def monotonic_ns(self) -> int:
        return self.now

    def state(self, node: str) -> str:
        return self.state_of.get(node, "running")

    def name_server_addrs(self) -> tuple[str, ...]:
        return SERVERS

    async def command(self, cmd: str, links: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        self.commands.append((cmd, links, arguments))
        return deepcopy(self.states)

    async def counters(self) -> dict[str, Any]:
        return deepcopy(self.states)

    async def heal(self, links: tuple[str, ...]) -> dict[str, Any]:
        self.healed.append(tuple(links))
        found = deepcopy(self.states)
        if self.stays_shut:
            found[links[0]]["withholding"] = ["forward"]
        self.pass_time({"bytes": 7})
        return found

    def pass_time(self, grown: dict[str, int]) -> None:
        self.now += 2_000_000_000
        for state in self.states.values():
            state["accepted"] += self.ends
            state["resets"] += self.resets
            state["flaps"] += self.flaps
            for way in ("forward", "backward"):
                for name, more in grown.items():
                    state[way][name] += more

    async def cut(self, links: tuple[str, ...]) -> dict[str, Any]:
        return deepcopy(self.states)


def make(wire: Wire, kind: str, *nodes: str, **parameters: Any) -> Fault:
    setting = Setting(cluster=wire, probe=wire, clock=wire)  # type: ignore[arg-type]
    found = FAULTS[kind]
    return found.make(setting, *(nodes or ("n0",)), **found.complete(parameters))


def lives(wire: Wire, fault: Fault) -> bool:
    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        wire.pass_time(wire.while_on)
        await fault.undo()
        await fault.probe_after()

    asyncio.run(body())
    return fault.witness.effective


GROWN: dict[str, dict[str, int]] = {
    "delay": {"delayed": 3, "late_us": 310_000},
    "namesrv_delay": {"delayed": 3, "late_us": 310_000},
    "narrow": {"slowed_bytes": 900},
    "reset": {"resets": 1},
    "namesrv_reset": {},
    "duplicate": {"duplicated": 1},
    "reorder": {"reordered": 1},
    "replay": {"replayed": 1},
    "corrupt": {"corrupted": 1},
    "drop": {"dropped": 1},
    "flap": {"withheld_bytes": 9},
}
"""What each kind makes grow, besides bytes."""


def taking_effect(kind: str) -> Wire:
    proof = PROOFS[kind]
    return Wire(
        while_on={"bytes": 50, **GROWN[kind]},
        ends=1 if proof.refused else 0,
        resets=1 if kind == "namesrv_reset" else 0,
        flaps=3 if kind == "flap" else 0,
    )


@pytest.mark.parametrize("kind", SHAPED)
def test_fault_that_takes_effect_counts_and_leaves_nothing_behind(kind):
    wire = taking_effect(kind)
    fault = make(wire, kind)
    assert lives(wire, fault)
    lifted = [] if kind in AT_ONCE else [fault.links]  # type: ignore[attr-defined]
    assert wire.healed == lifted
    assert fault.witness.during
    asyncio.run(lift(wire, fault.undo_entry()))  # type: ignore[arg-type]
    again = () if kind in AT_ONCE else fault.links  # type: ignore[attr-defined]
    assert wire.healed == [*lifted, again], "the journal lifts the same"


@pytest.mark.parametrize("kind", SHAPED)
def test_command_that_did_nothing_does_not_count(kind):
    wire = Wire(while_on={"bytes": 50}, ends=1)
    assert not lives(wire, make(wire, kind))


@pytest.mark.parametrize("kind", [kind for kind in SHAPED if PROOFS[kind].refused])
def test_frames_that_nobody_refused_do_not_count(kind):
    wire = taking_effect(kind)
    wire.ends = 0
    assert not lives(wire, make(wire, kind))


@pytest.mark.parametrize("kind", ["duplicate", "reorder", "replay", "drop"])
def test_members_that_seal_must_have_ended_the_connection(kind):
    wire = taking_effect(kind)
    wire.sealed = True
    assert not lives(wire, make(wire, kind))
    wire = taking_effect(kind)
    wire.sealed, wire.ends = True, 1
    assert lives(wire, make(wire, kind))


@pytest.mark.parametrize("kind", ["delay", "narrow", "flap"])
def test_members_that_seal_notice_no_lateness(kind):
    wire = taking_effect(kind)
    wire.sealed = True
    assert lives(wire, make(wire, kind))


def test_delay_that_was_shorter_than_asked_for_does_not_count():
    wire = taking_effect("delay")
    wire.while_on["late_us"] = 3 * 50_000
    assert not lives(wire, make(wire, "delay", ms=100))


def test_rate_beyond_which_bytes_passed_does_not_count():
    wire = taking_effect("narrow")
    wire.while_on["bytes"] = 10_000_000
    assert not lives(wire, make(wire, "narrow", kib_s=8))


def test_what_passes_before_a_rate_holds_is_not_held_to_it():
    wire = taking_effect("narrow")
    fault = make(wire, "narrow", kib_s=8)
    told = wire.command

    async def command(cmd, links, **arguments):
        for name in links:
            wire.states[name]["forward"]["bytes"] += 10_000_000
        return await told(cmd, links, **arguments)

    wire.command = command
    assert lives(wire, fault)


def _one_link_beyond_its_rate():
    """Twelve directions may pass 16 KiB each in these two seconds; one passes 150 KB."""
    wire = taking_effect("narrow")
    fault = make(wire, "narrow", *NODES, kib_s=8)
    passing = wire.pass_time

    def pass_time(grown):
        passing(grown)
        wire.states["n0>n1"]["forward"]["bytes"] += 150_000 if grown is wire.while_on else 0

    wire.pass_time = pass_time
    return lives(wire, fault)


def test_rate_beyond_which_bytes_passed_on_one_link_of_many_does_not_count():
    assert not _one_link_beyond_its_rate()


def test_rate_of_all_links_together_is_seen():
    with planted(HARNESS_BUGS["rates-taken-together"]):
        assert _one_link_beyond_its_rate()


@pytest.mark.parametrize("what", ["flaps", "bytes"])
def test_link_that_did_not_come_and_go_does_not_count_as_flapping(what):
    wire = taking_effect("flap")
    if what == "flaps":
        wire.flaps = 1
    else:
        wire.while_on["bytes"] = 0
    assert not lives(wire, make(wire, "flap"))


@pytest.mark.parametrize("kind", ["client_cut", "namesrv_cut"])
def test_cut_of_clients_or_name_servers_counts_only_if_somebody_tried(kind):
    silent = Wire()
    assert not lives(silent, make(silent, kind))
    leaks = Wire(while_on={"withheld_bytes": 5, "bytes": 1})
    assert not lives(leaks, make(leaks, kind))
    cut = Wire(while_on={"withheld_bytes": 5})
    assert lives(cut, make(cut, kind))


def test_clients_of_one_broker_keep_their_name_servers():
    assert make(Wire(), "client_cut", "n1").links == ("client>n1",)  # type: ignore[attr-defined]
    every = make(Wire(), "client_cut", *NODES).links  # type: ignore[attr-defined]
    assert every == tuple(f"client>{name}" for name in (*NODES, *SERVERS))


def test_links_of_a_fault_are_those_of_its_nodes():
    assert set(make(Wire(), "delay", "n0", "n2").links) == {"n0>n2", "n2>n0"}  # type: ignore[attr-defined]
    assert set(make(Wire(), "delay", *NODES).links) == set(link_names(NODES))  # type: ignore[attr-defined]
    assert make(Wire(), "namesrv_delay", "n1").links == ("n1>ns0", "n1>ns1")  # type: ignore[attr-defined]
    one = set(make(Wire(), "delay", "n0").links)  # type: ignore[attr-defined]
    assert one == {"n0>n1", "n1>n0", "n0>n2", "n2>n0"}


def test_link_that_withholds_after_the_heal_is_said_so():
    wire = taking_effect("delay")
    wire.stays_shut = True
    with pytest.raises(ClusterFailed, match="still withhold"):
        lives(wire, make(wire, "delay"))


def test_links_that_only_pass_or_do_not_refuse_the_fault_by_name():
    class Plain(Wire):
        command = None  # type: ignore[assignment]

    wire = Plain(method="nft")
    del Plain.command
    wire.links = type("OnlyCut", (), {"method": "nft", "counters": wire.counters})()
    with pytest.raises(ClusterFailed, match="delay: links by nft only pass or do not"):
        lives(wire, make(wire, "delay"))


@pytest.mark.parametrize("kind", SHAPED)
def test_every_command_is_one_that_the_proxy_takes(kind):
    command = command_of(kind, FAULTS[kind].complete({}))
    if command["cmd"] == "shape":
        rule_from(command["rule"])
    assert command["cmd"] in {"shape", "flap", "rst"}


@pytest.mark.parametrize("kind", FAULTS)
def test_parameters_have_defaults_within_their_limits(kind):
    for one in FAULTS[kind].parameters.values():
        assert one.check(one.default) == one.default
        if isinstance(one, Bounds):
            for wrong in (one.low - 1e-6, one.high * 1.01, "x", True, None):
                with pytest.raises(ValueError, match="is not a number of"):
                    one.check(wrong)
    with pytest.raises(ValueError, match="no parameter is called nonsense"):
        FAULTS[kind].complete({"nonsense": 1})
    entry = BY_NEMESIS[kind]
    outer = entry.kind.startswith("net.") and entry.target in {Target.CLIENT, Target.NAMESRV}
    assert FAULTS[kind].every_link is outer


def test_word_that_is_none_of_a_few_is_refused():
    with pytest.raises(ValueError, match="'tea' is not one of a, b"):
        OneOf(("a", "b")).check("tea")


def test_witness_that_believes_its_command_is_found_out():
    wire = Wire(while_on={"bytes": 50}, ends=1)
    with planted(HARNESS_BUGS["witness-believes-the-proxy"]):
        assert lives(wire, make(wire, "corrupt"))


def test_a_link_has_one_fault_at_a_time():
    """The second one would lift the first, or be lifted with it, and both would count."""
    wire = taking_effect("delay")
    wire.states["n0>n1"]["ruled"] = True
    for kind, nodes in (("delay", ("n0",)), ("cut", ("n0", "n1")), ("isolate", ("n1",))):
        with pytest.raises(ClusterFailed, match=r"another fault that is on has .*n0>n1"):
            asyncio.run(make(wire, kind, *nodes).probe_before())
    asyncio.run(make(wire, "cut", "n1", "n2").probe_before())  # it has another one
    assert wire.commands == []


def test_what_leaves_no_rule_lifts_none_when_it_ends():
    """Another fault may have the links by then."""
    wire = taking_effect("namesrv_reset")
    fault = make(wire, "namesrv_reset")

    async def body() -> None:
        await fault.probe_before()
        await fault.apply()
        other = make(wire, "namesrv_cut")
        await other.probe_before()
        await other.apply()
        wire.pass_time(wire.while_on)
        await fault.undo()
        await fault.probe_after()
        assert wire.healed == []
        await lift(wire, fault.undo_entry())  # type: ignore[arg-type]
        assert wire.healed == [()]
        await other.undo()

    asyncio.run(body())
    assert fault.witness.effective
    assert [bool(links) for links in wire.healed] == [False, True]


def test_a_second_fault_of_a_link_is_seen():
    wire = taking_effect("delay")
    wire.states["n0>n1"]["ruled"] = True
    with planted(HARNESS_BUGS["link-shared-by-faults"]):
        assert lives(wire, make(wire, "delay", "n0"))
