"""A leader to whom nothing happens answers at once."""

from types import SimpleNamespace

import pytest

from sim.health import ELECTED_NS, NS_PER_MS, SETTLED_NS, Health
from sim.oracles.base import Violation
from sim.oracles.prompt import AT_ONCE_NS, NAME, REPLY, Prompt
from sim.oracles.wire import Said
from tests.unit.sim.fault_world import FaultWorld, event


@pytest.mark.parametrize(
    ("code", "since_ns", "waited_ns", "is_sound"),
    [
        (17, 0, AT_ONCE_NS + 1, False),
        (17, 0, AT_ONCE_NS, True),
        (17, 101, AT_ONCE_NS + 1, True),
        (17, None, AT_ONCE_NS + 1, True),
        (11, 0, AT_ONCE_NS + 1, True),
    ],
)
def test_who_asks_an_undisturbed_leader_does_not_wait(code, since_ns, waited_ns, is_sound):
    prompt, replica = Prompt(), SimpleNamespace(name="n0")
    prompt.calm_since_ns = lambda _name, *, clients: since_ns
    request = Said(code, {}, b"", 100, b"")
    if is_sound:
        prompt.check(replica, request, 100 + waited_ns)
    else:
        with pytest.raises(Violation, match=NAME):
            prompt.check(replica, request, 100 + waited_ns)


@pytest.mark.parametrize(
    ("led_ns", "touched_ms", "preferred", "wanted_ns"),
    [
        (5, 0, "", 5 + ELECTED_NS),
        (5, 9_000, "", 9_000 * NS_PER_MS + SETTLED_NS),
        (None, 0, "", None),
        (5, 0, "n0", None),
    ],
)
def test_calm_begins_with_leadership_or_behind_the_last_fault(
    led_ns, touched_ms, preferred, wanted_ns
):
    watch = SimpleNamespace(
        healthy=SimpleNamespace(led_since_ns=lambda _name: led_ns), replicas={"n0": None}
    )
    options = SimpleNamespace(preferred=preferred)
    world = SimpleNamespace(
        watch=watch, plan=SimpleNamespace(options=options), loop=SimpleNamespace(now_ns=0),
        hosts={"n0": None, "c0": None},
    )  # fmt: skip
    health = Health(world)
    health.touched_ms = lambda names, _now_ms: touched_ms if "n0" in names else 0
    assert health.calm_since_ns("n0") == wanted_ns


def test_who_waits_for_an_asker_is_not_judged_while_its_connection_may_be_half_open():
    watch = SimpleNamespace(
        healthy=SimpleNamespace(led_since_ns=lambda _name: 0), replicas={"n0": None}
    )
    world = SimpleNamespace(
        watch=watch, plan=SimpleNamespace(options=SimpleNamespace(preferred="")),
        loop=SimpleNamespace(now_ns=0), hosts={"n0": None, "c0": None},
    )  # fmt: skip
    health = Health(world)
    health.touched_ms = lambda names, _now_ms: 9_000 if "c0" in names else 0
    assert health.calm_since_ns("n0") == ELECTED_NS
    assert health.calm_since_ns("n0", clients=True) == 9_000 * NS_PER_MS + SETTLED_NS
    prompt, replica = Prompt(), SimpleNamespace(name="n0")
    prompt.calm_since_ns = health.calm_since_ns
    begin_ns = ELECTED_NS
    prompt.check(replica, Said(REPLY, {}, b"", begin_ns, b""), begin_ns + AT_ONCE_NS + 1)
    with pytest.raises(Violation, match=NAME):
        prompt.check(replica, Said(17, {}, b"", begin_ns, b""), begin_ns + AT_ONCE_NS + 1)


def test_a_fault_touches_those_whom_it_is_about():
    world = FaultWorld(event("pause", at_ms=1_000, for_ms=500, target="n1"))
    nemesis = world.nemesis
    nemesis.start()
    assert nemesis.touched_ms(("n0", "n1"), 900) == 0
    world.run(1_200)
    assert nemesis.touched_ms(("n0", "n1"), 1_200) == 1_200
    assert nemesis.touched_ms(("n0",), 1_200) == 0
    world.run(2_000)
    assert nemesis.touched_ms(("n1",), 2_000) == 1_500
    world.loop.close()
