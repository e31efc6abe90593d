"""What runs on the hosts of clients: producers and consumers of every kind, odd clients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.client_app import ClientApp
from sim.clients.odd import OddApp, Places
from sim.consumer_app import ConsumerApp, LateApp
from sim.edging import lease_ms, refused_p, scale_member
from sim.everyday.app import EverydayApp, HabitsApp
from sim.everyday.life import Life
from sim.faults.plan import MEMBERS
from sim.fitful.app import Around, FitfulApp
from sim.further import FurtherApp, Task
from sim.guarded.app import GuardedApp
from sim.guarded.file import accounts_of
from sim.kinds import Odd
from sim.layout import GROUP
from sim.members import BroadcastApp, MemberApp, OrderlyApp, RetryApp
from sim.oracles.renewing import Renewing
from sim.payers import PayApp
from sim.skilled.app import SkilledApp, Times
from sim.tools import ToolsApp
from sim.workload import NOT_OF_PRODUCERS, PAY_GROUP, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgermq.client import PushConsumer
    from sim.context import Host
    from sim.disk import SimDisk
    from sim.faults.plan import Plan
    from sim.health import Health
    from sim.judges import Judges
    from sim.layout import Layout
    from sim.loop import SimLoop
    from sim.oracles.base import Findings
    from sim.oracles.clients import Clients
    from sim.validators import Validators
    from sim.workload import Op

App = ClientApp | ConsumerApp | OddApp | MemberApp | PayApp | FurtherApp | ToolsApp | HabitsApp

NS_PER_MS: Final = 1_000_000
MANY_TOPICS: Final = 60
FEW_TOPICS: Final = 6
"""Where two topics of a registration take a turn, and each turn takes long."""
REBORN_MS: Final = 400
"""A member that was killed is started again after so long."""


class World(Protocol):
    """Where the programs run; `sim.world.World`."""

    plan: Plan
    findings: Findings
    health: Health
    layout: Layout
    loop: SimLoop
    hosts: dict[str, Host]
    apps: dict[str, App]
    validators: Validators
    judges: Judges
    clients_oracle: Clients
    operations: list[Op]

    def at(self, when_ns: int, action: Callable[[], object]) -> None:
        """Do something at a virtual time that no process does."""
        ...

    def brokers(self) -> Sequence[str]:
        """Return the hosts of brokers, spares included."""
        ...

    def crash(self, name: str) -> None:
        """Kill the process of a host."""
        ...

    def start(self, name: str) -> None:
        """Start the process of a host."""
        ...

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        ...

    def leader(self) -> str | None:
        """Return who leads."""
        ...


async def run_client(world: World, name: str) -> None:
    """Be the program of a host, for ever."""
    layout = world.layout
    habits = (
        (layout.everyday, _run_everyday), (layout.fitful, _run_fitful),
        (layout.skilled, _run_skilled), (layout.guarded, _run_guarded),
    )  # fmt: skip
    run_habits = next((run for names, run in habits if name in names), None)
    if run_habits is not None:
        await run_habits(world, name)
    elif name in layout.odd:
        await _run_odd(world, name)
    elif name in layout.members["t"]:
        await _run_payer(world, name)
    elif name in layout.members["x"]:
        await _run_further(world, name)
    elif name in layout.tools:
        await _run_tools(world, name)
    elif name in layout.all_members:
        world.apps[name] = member = _member(world, name)
        await member.run()
    elif name in layout.consumers or name in layout.late:
        await _run_consumer(world, name)
    else:
        await _run_producer(world, name)


def plan_crashes(world: World) -> None:
    """Have members killed and started again, as the plan says."""
    plan = world.plan
    for prefix, field in MEMBERS.items():
        kind = getattr(plan.workload, field)
        crash_ms = 0 if kind is None else kind.group.crash_ms
        for at_ms in range(crash_ms, plan.options.safety_ms, crash_ms) if crash_ms else ():
            world.at(at_ms * NS_PER_MS, partial(_crash, world, f"{prefix}0"))


def _crash(world: World, name: str) -> None:
    world.crash(name)
    app = world.apps.get(name)
    if world.judges.broadcast is not None and isinstance(app, BroadcastApp):
        world.judges.broadcast.on_killed(name, app.written())
    world.at(world.loop.now_ns + REBORN_MS * NS_PER_MS, partial(world.start, name))


def _follow_locks(world: World, push: PushConsumer) -> None:
    """Have a member in order go by the lease of the plan, and be judged by that."""
    scale_member(world.plan, push)
    if refused_p(world.plan) or world.plan.workload.unwilling is not None:
        return  # a renewal is refused, too

    def calm_since_ns() -> int | None:
        leader = world.leader()
        return None if leader is None else world.health.calm_since_ns(leader, clients=True)

    Renewing(world.findings, lambda: world.loop.now_ns, calm_since_ns).follow(push)


def _member(world: World, name: str) -> MemberApp:
    workload, judges = world.plan.workload, world.judges
    common: Any = (name, world.layout.client_config(name), world.hosts[name], world.validators)
    until_ms = world.plan.options.safety_ms
    if name in world.layout.members["w"]:
        tasks, retries = workload.retrying, judges.retries
        assert tasks is not None
        assert retries is not None
        return RetryApp(*common, tasks.group, until_ms, settings=tasks, oracle=retries)
    if name in world.layout.members["o"]:
        steps, order = workload.orderly, judges.order
        assert steps is not None
        assert order is not None
        orderly = OrderlyApp(*common, steps.group, until_ms, settings=steps, oracle=order)
        orderly.on_made = partial(_follow_locks, world)
        return orderly
    news, broadcast = workload.broadcast, judges.broadcast
    assert news is not None
    assert broadcast is not None
    return BroadcastApp(
        *common, news.group, until_ms, settings=news, oracle=broadcast, disk=world.disk(name)
    )


async def _run_payer(world: World, name: str) -> None:
    settings, oracle = world.plan.workload.transactional, world.judges.transactions
    assert settings is not None
    assert oracle is not None
    config = replace(world.layout.client_config(name), group=PAY_GROUP)
    app = PayApp(name, config, world.hosts[name], world.validators, settings, oracle)
    everyday, fitful = world.plan.workload.everyday, world.plan.workload.fitful
    periods = 0 if everyday is None else everyday.slow_checks
    if fitful is not None:
        periods, app.raise_p = max(periods, fitful.slow_checks), fitful.raise_p
    app.slow_ms = periods * settings.check_ms
    world.apps[name] = app
    now_ms = world.loop.now_ns // NS_PER_MS
    mine = [
        op
        for op in world.operations
        if op.kind is Kind.PAY
        and op.at_ms >= now_ms
        and op.client % settings.group.members == int(name[1:])
    ]
    await app.run(mine)


async def _run_further(world: World, name: str) -> None:
    settings = world.plan.workload.further
    assert settings is not None
    strain = world.plan.workload.strain
    task = Task(
        settings,
        world.judges.further,
        world.plan.options.safety_ms,
        strain is not None and strain.forth_again,
    )
    config, host = world.layout.client_config(name), world.hosts[name]
    app = FurtherApp(name, config, host, world.validators, task)
    world.apps[name] = app
    await app.run()


async def _run_tools(world: World, name: str) -> None:
    edges = world.plan.workload.edges
    assert edges is not None
    times_ms = (edges.tools_ms, world.plan.options.safety_ms)
    config = world.layout.client_config(name)
    brokers = {world.layout.broker_address(one): one for one in world.brokers()}
    app = ToolsApp(name, config, world.hosts[name], world.validators, times_ms, brokers)
    world.apps[name] = app
    await app.run()


async def _run_fitful(world: World, name: str) -> None:
    settings, until_ms = world.plan.workload.fitful, world.plan.options.safety_ms
    assert settings is not None
    on_made = partial(_follow_locks, world)
    around = Around(until_ms, world.disk(name), world.judges.further, on_made)
    app = FitfulApp(name, _life(world, name), settings, around)
    world.apps[name] = app
    await app.run()


def _life(world: World, name: str) -> Life:
    """Return one life of clients that have habits."""
    layout, host, small = world.layout, world.hosts[name], world.plan.workload.small

    def calm_since_ms() -> int | None:
        leader = world.leader()
        found = None if leader is None else world.health.calm_since_ns(leader, clients=True)
        if found is None:
            return None
        return host.clock.monotonic_ms() - (world.loop.now_ns - found) // NS_PER_MS

    return Life(
        name=f"{name}-{host.incarnation}",
        config=layout.client_config(name),
        machine=host,
        rng=host.rng.split(f"life{host.incarnation}"),
        validators=world.validators,
        brokers={layout.broker_address(one): one for one in world.brokers()},
        namesrvs=tuple(layout.namesrv_addrs()),
        dropped=world.clients_oracle.dropped,
        topics_max=FEW_TOPICS if small is not None and small.turn_ms else MANY_TOPICS,
        calm_since_ms=calm_since_ms,
    )


def _delays_ms(world: World) -> Sequence[int]:
    """Return how long each level of delay waits, none where clocks do not run as time does."""
    plan = world.plan
    is_steady = not plan.options.clock_spread_ms and not plan.moves_clocks
    return world.judges.delays.delays_ms if is_steady else ()


async def _run_everyday(world: World, name: str) -> None:
    settings, until_ms = world.plan.workload.everyday, world.plan.options.safety_ms
    assert settings is not None
    app = EverydayApp(name, _life(world, name), settings, until_ms, _delays_ms(world))
    world.apps[name] = app
    await app.run()


async def _run_skilled(world: World, name: str) -> None:
    plan = world.plan
    settings = plan.workload.skilled
    assert settings is not None
    times = Times(plan.options.safety_ms, _delays_ms(world), lease_ms(plan))
    app = SkilledApp(name, _life(world, name), settings, times, partial(scale_member, plan))
    world.apps[name] = app
    await app.run()


async def _run_guarded(world: World, name: str) -> None:
    settings, until_ms = world.plan.workload.guarded, world.plan.options.safety_ms
    assert settings is not None
    accounts = accounts_of(world.plan)
    app = GuardedApp(name, _life(world, name), settings, until_ms, accounts)
    world.apps[name] = app
    await app.run()


async def _run_consumer(world: World, name: str) -> None:
    layout, workload = world.layout, world.plan.workload
    config, host = layout.client_config(name), world.hosts[name]
    if name in layout.consumers:
        world.apps[name] = member = ConsumerApp(name, config, host, world.validators, workload)
        await member.consume()
        return
    late = LateApp(
        name, config, host, world.validators, workload,
        late=workload.late[layout.late.index(name)],
    )  # fmt: skip
    world.apps[name] = late
    await late.run()


async def _run_producer(world: World, name: str) -> None:
    layout = world.layout
    number = layout.clients.index(name)
    app = ClientApp(
        name, number, layout.client_config(name), world.hosts[name], world.validators,
        world.plan.workload,
    )  # fmt: skip
    world.apps[name] = app
    now_ms = world.loop.now_ns // NS_PER_MS
    count = len(layout.producers)
    mine = [
        op
        for op in world.operations
        if op.client % count == number
        and op.at_ms >= now_ms
        and isinstance(op.kind, Kind)
        and op.kind not in NOT_OF_PRODUCERS
    ]
    await app.run(mine)


async def _run_odd(world: World, name: str) -> None:
    layout = world.layout

    def leader() -> str | None:
        known = world.leader()
        return None if known is None else layout.broker_address(known)

    places = Places(
        leader,
        GROUP,
        tuple(map(layout.broker_address, (*world.brokers(), *layout.alone))),
        next(map(layout.broker_address, layout.alone), ""),
        {one: layout.peer_address(one) for one in world.brokers()},
        tuple(layout.namesrv_addrs()),
    )
    app = OddApp(name, world.hosts[name], world.validators, places)
    world.apps[name] = app
    await app.run([op for op in world.operations if isinstance(op.kind, Odd)])
