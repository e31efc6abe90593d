"""One run of a scenario, from an empty directory to a recorded history.

Phases: start, warmup, baseline, main (the timeline), heal, quiesce, drain, audit, stop, dump. It
judges nothing; `chaos.verdict` does. Whatever fails after the start is noted as a problem and the
run goes on, because a history that is judged is worth more than one that is thrown away.

RUN/run.json, raw/*.jsonl, tables/<table>/*.parquet, replicas/<node>/, logs/, config/, undo.jsonl.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chaos.backends.base import Cluster, ClusterFailed, ClusterSpec, Overseen
from chaos.backends.controlled import LocalControlled
from chaos.backends.local import LocalCluster
from chaos.backends.pair import LocalPair
from chaos.catalogue.contracts import CONTROLLER, MODES, RAFT, copies
from chaos.churn import change_members
from chaos.closing import Closing
from chaos.convert import LAST_TABLE, convert
from chaos.decisions import DecisionProbe
from chaos.dump import dump_events, dump_replicas
from chaos.generator import Script, Stream
from chaos.history.payload import run_tag
from chaos.interpreter import Interpreter, Slots
from chaos.members import consumer_specs, hostile_spec, producer_specs
from chaos.nemesis.base import Setting
from chaos.nemesis.journal import UndoJournal, heal_all
from chaos.nemesis.kinds import FAULTS
from chaos.nemesis.runner import Nemesis
from chaos.nemesis.wait import until
from chaos.node_log import Ahead, ahead_of_wall_ns, read_logs, roles_of, write_node_log
from chaos.parts import Parts, RunOptions, group_of
from chaos.probe import Probe
from chaos.record import Recorder
from chaos.replaced import Replaceable
from chaos.rest import come_to_rest
from chaos.routes import RouteQuestions
from chaos.scenario import (
    AVAILABILITY_MIN,
    CHECK_BACK,
    DELAYS_MS,
    LATE_MS_HALF_MAX,
    LATE_MS_MAX,
    MAIN_GROUP,
    RECOVERY_MS_MAX,
    TOPIC,
    TRANSACTIONS,
    Scenario,
    as_script,
    planned_faults,
)
from chaos.view import View
from chaos.watch import Watch
from chaos.workers import Workers
from ledgermq.client import ClientConfig, Producer, RemotingError
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk

TOPIC_TIMEOUT_S = 15.0
HEALTHY_TIMEOUT_S = 20.0
LOG_LINES = 6
RECORDED = (
    "sends",
    "deliveries",
    "acks",
    "events",
    "drain",
    "faults",
    "txn",
    "raft_probe",
    "answers",
    "node_log",
)
"""Tables that every run of ours has: one that is missing later was taken away."""
MASTERS, RAFT_EVENT = "masters", "raft_event"
"""The ones that runs with controllers, or of Raft groups, have besides."""
COUNTS_EVERY_S = 0.25
RUNNING = "running"
"""The file in a run that is locked while it is recorded."""


def make_cluster(spec: ClusterSpec, backend: str) -> Cluster:
    """Return a cluster of the backend, not started. Errors: ClusterFailed for an unknown one."""
    if backend == "docker" and spec.mode != RAFT:
        raise ClusterFailed(f"the docker backend has no {spec.mode}; --backend local has")
    if backend == "docker":
        from chaos.backends.docker import DockerCluster  # noqa: PLC0415 - needs an engine

        return DockerCluster(spec)
    if backend != "local":
        raise ClusterFailed(f"no backend is called {backend!r}")
    kinds = {RAFT: LocalCluster, CONTROLLER: LocalControlled}
    return kinds.get(spec.mode, LocalPair)(spec)


async def run_scenario(scenario: Scenario, options: RunOptions, view: View) -> Path:
    """Run a scenario and return the run directory with its history.

    Errors: ClusterFailed if the cluster does not start; OSError if the directory is in use.
    """
    run = options.run
    run.mkdir(parents=True, exist_ok=False)
    # Held until the tables are there: whoever watches sees by it that we live.
    with contextlib.closing(RealDisk().lock(str(run / RUNNING))):
        await _record(scenario, options, view)
    return run


async def _record(scenario: Scenario, options: RunOptions, view: View) -> None:
    """Run a scenario into its directory, which is there and empty. Errors: as `run_scenario`."""
    run = options.run
    (run / "config").mkdir()
    clock = SystemClock()
    levels = " ".join(f"{delay_ms // 1000}s" for delay_ms in DELAYS_MS)
    mode = MODES[scenario.mode]
    spec = ClusterSpec(
        run=run,
        mode=mode.name,
        group=group_of(mode.name),
        nodes=tuple(f"n{number}" for number in range(mode.nodes)),
        name_servers=mode.name_servers,
        flush=scenario.flush,
        mutant=options.mutant,
        seed=options.seed,
        settings={"messageDelayLevel": levels, **TRANSACTIONS, **scenario.settings},
        sealed=scenario.sealed,
        every_link=any(FAULTS[f.kind.nemesis].every_link for _, f in planned_faults(scenario)),
        shimmed=any(FAULTS[f.kind.nemesis].shimmed for _, f in planned_faults(scenario)),
    )
    cluster = make_cluster(spec, options.backend)
    with Recorder(run / "raw" / "harness.jsonl") as recorder:
        parts = Parts(
            scenario=scenario,
            options=options,
            view=view,
            run_id=uuid.uuid4().hex,
            cluster=cluster,
            recorder=recorder,
            workers=Workers(run, options.mutant),
            probe=Probe(cluster, recorder, clock),
            decisions=(
                DecisionProbe(cluster, recorder, clock) if isinstance(cluster, Overseen) else None
            ),
            clock=clock,
            t0_wall_us=clock.wall_ms() * 1000,
            ahead_ns=clock.monotonic_ns() - clock.wall_ms() * 1_000_000,
        )
        # Should the harness die, this and the recordings are enough to judge what there is.
        _write_about(parts, ["the run was interrupted"])
        try:
            if options.watched:
                parts.watch = await Watch(run, view.notice, options.stop_on).start()
            await _live(parts)
        except BaseException:
            if parts.watch is not None:
                await parts.watch.kill()
            await _put_down(parts)
            await cluster.remove()
            raise
        await _put_down(parts)
        await _end_watch(parts)
        await asyncio.to_thread(_read_logs, parts)
        await _collect(parts)
        with _noting(parts, "the cluster could not be removed"):
            await cluster.remove()
    convert(run, run_row(_write_about(parts, parts.problems)))


async def _live(parts: Parts) -> None:
    """Everything that needs a running cluster."""
    scenario, workers = parts.scenario, parts.workers
    nodes = len(parts.cluster.nodes)
    parts.phase("start", f"{nodes} brokers, name servers, backend {parts.cluster.backend}")
    await parts.cluster.start()
    parts.probe.start()
    if parts.decisions is not None:
        parts.decisions.start()
    await _create_topic(parts)
    load = scenario.workload
    await workers.start("consumer", consumer_specs(parts.plan))
    await workers.start("producer", producer_specs(parts.plan))
    if load.hostile:
        await workers.start("hostile", [hostile_spec(parts.plan)])
    async with _shown_counts(parts):
        groups = 1 + len(load.groups)
        text = f"{len(producer_specs(parts.plan))} producers, {groups} groups, {load.rate:.0f}/s"
        parts.phase("warmup", text)
        await asyncio.sleep(scenario.warmup_s)
        parts.phase("baseline", "no faults yet")
        await asyncio.sleep(scenario.baseline_s)
        parts.phase("main", f"{len(planned_faults(scenario))} faults")
        churn = asyncio.create_task(change_members(parts))
        await _timeline(parts)
        await churn
        parts.phase("quiesce", "no faults any more, still sending")
        await asyncio.sleep(scenario.quiesce_s)
        for role in ("hostile", "producer"):
            await workers.stop(role, quiet=not parts.problems)
        closing = Closing(parts)
        await closing.drain()
    await closing.audit()
    await come_to_rest(parts)
    await closing.ask()


async def _put_down(parts: Parts) -> None:
    """Stop everything, whatever happened before."""
    with contextlib.suppress(OSError):  # it is put down where nothing can be recorded, too
        parts.phase("stop", "stopping the brokers")
    ended: list[str] = []
    with _noting(parts, "the clients could not be ended"):
        await parts.workers.kill_all()
    for poller in (parts.probe, parts.decisions):
        for line in await poller.stop() if poller is not None else ():
            parts.problem(line)
    with _noting(parts, "nobody knows who ended by itself"):
        ended = parts.cluster.unexpected_exits()
    with _noting(parts, "the cluster could not be stopped"):
        await parts.cluster.stop()
    with _noting(parts, "nobody knows who ended otherwise than asked to"):
        ended = list(dict.fromkeys([*ended, *parts.cluster.unexpected_exits()]))
    parts.exits = [_exit_row(parts.options.run, line) for line in ended]
    for row in parts.exits:
        if row["process"] == "proxy":  # a part of the harness
            parts.problem(f"unexpected end: proxy {row['exit']}")


@contextlib.contextmanager
def _noting(parts: Parts, what: str) -> Iterator[None]:
    """Note an error of the block as a problem: what was recorded is judged all the same."""
    try:
        yield
    except (ClusterFailed, OSError) as error:
        parts.problem(f"{what}: {type(error).__name__}: {error}")


async def _end_watch(parts: Parts) -> None:
    """Let the stream come to the end of what was recorded."""
    if parts.watch is None:
        return
    parts.phase("watch", "the stream reads the rest of the record")
    problem = await parts.watch.end()
    if problem is not None:
        parts.problem(problem)


@contextlib.asynccontextmanager
async def _stopped_early(parts: Parts, interpreter: Interpreter) -> AsyncIterator[None]:
    """Let no step of the timeline begin any more once an alarm was grave enough."""

    async def stop() -> None:
        if parts.watch is not None:
            await parts.watch.grave.wait()
            parts.view.notice("the alarm ends the run early: no fault is begun any more")
            parts.event("stopped_early", {"on": parts.options.stop_on})
            interpreter.stop()

    task = asyncio.create_task(stop())
    try:
        yield
    finally:
        task.cancel()


async def _create_topic(parts: Parts) -> None:
    """Create the topics as soon as there is a leader. Errors: ClusterFailed."""
    config = ClientConfig(
        namesrv_addrs=parts.cluster.name_server_addrs(), group="chaos-setup", instance_name="setup"
    )
    last: list[str] = []
    async with Producer(config) as producer:

        async def created() -> bool:
            try:
                for topic in parts.plan.topics:
                    await producer.create_topic(topic, parts.scenario.workload.queues)
                found = [await producer.fetch_publish_queues(t) for t in parts.plan.topics]
                return all(found)
            except RemotingError as error:
                last[:] = [f"{type(error).__name__}: {error}"]
                return False

        if not await until(created, TOPIC_TIMEOUT_S):
            raise ClusterFailed(f"the topic could not be created: {' '.join(last)}")


def _exit_row(run: Path, line: str) -> dict[str, Any]:
    """Return what is told of a process that ended by itself: its name, how, the end of its log."""
    name, _, rest = line.partition(" ")
    log = run / "logs" / f"{name}.log"
    said = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return {"process": name, "exit": rest, "log": said[-LOG_LINES:]}


@contextlib.asynccontextmanager
async def _shown_counts(parts: Parts) -> AsyncIterator[None]:
    """Show the counts while the block runs."""

    async def show() -> None:
        while True:
            parts.view.counts(parts.workers.totals(), parts.probe.leader())
            await asyncio.sleep(COUNTS_EVERY_S)

    task = asyncio.create_task(show())
    try:
        yield
    finally:
        task.cancel()


async def _timeline(parts: Parts) -> None:
    """Perform the timeline and lift whatever is left."""
    stream = Stream(parts.options.seed, "nemesis")
    path = parts.options.run / "undo.jsonl"
    journal = UndoJournal(path)
    nemesis = Nemesis(
        setting=Setting(
            cluster=parts.cluster,
            probe=parts.probe,
            clock=parts.clock,
            clients=Replaceable(parts),
        ),
        recorder=parts.recorder,
        journal=journal,
        stream=stream,
        last_ack_ns=parts.workers.last_ack_ns,
        notice=parts.view.notice,
        on_healthy=RouteQuestions(parts).ask,
    )
    nemesis.plan(planned_faults(parts.scenario))
    slots = Slots(worker=0, role="nemesis", count=1, first_process=0)
    interpreter = Interpreter(
        client=nemesis, recorder=parts.recorder, clock=parts.clock, slots=slots
    )
    try:
        async with timeout(parts.scenario.timeline_s_max), _stopped_early(parts, interpreter):
            await interpreter.run(Script(as_script(parts.scenario)))
    except TimeoutError:
        parts.problem(f"the timeline took over {parts.scenario.timeline_s_max:.0f} s")
    parts.phase("heal", "lifting every fault")
    await nemesis.heal()
    nemesis.close_plan()
    for line in nemesis.problems:
        parts.problem(line)
    if copies(MODES[parts.scenario.mode].durability, len(parts.cluster.nodes)) == 1:
        parts.lost_alone = nemesis.lost_alone()
    journal.close()
    for line in await heal_all(parts.cluster, path):
        parts.problem(f"not healed: {line}")

    async def healthy() -> bool:
        return parts.probe.healthy()

    if not await until(healthy, HEALTHY_TIMEOUT_S):
        parts.problem(f"the cluster was not healthy {HEALTHY_TIMEOUT_S:.0f} s after the heal")


async def _collect(parts: Parts) -> None:
    """Copy the replicas' logs. A node without a last word has only what it said before."""
    parts.phase("dump", "collecting the replicas' logs")
    statuses = {**parts.probe.last_seen, **parts.statuses}
    if set(statuses) != set(parts.cluster.nodes):
        parts.problem("not every node answered at the end; no logs were collected")
        return
    try:
        run = parts.options.run
        await dump_replicas(parts.cluster, run, statuses, group_of(parts.scenario.mode))
        await dump_events(parts.cluster, run, parts.run_id)
    except (ClusterFailed, OSError) as error:
        parts.problem(f"the logs could not be collected: {error}")


def _read_logs(parts: Parts) -> None:
    """Write down what matters in the logs of all processes, which have ended."""
    faults = planned_faults(parts.scenario)
    ahead_ns = ahead_of_wall_ns(parts.clock.monotonic_ns(), parts.clock.wall_ms(), parts.ahead_ns)
    times: Ahead = dict.fromkeys(("broker", "namesrv", "client"), ahead_ns)
    # A broker's stamps are of the clock that it was shown.
    if any(fault.kind.moves_clock for _, fault in faults):
        times["broker"] = None
    servers = MODES[parts.scenario.mode].name_servers
    roles = roles_of(parts.cluster.nodes, servers, parts.workers.names("producer", "consumer"))
    try:
        rows, parts.unlogged = read_logs(parts.options.run / "logs", roles, times)
        write_node_log(parts.options.run, parts.run_id, rows)
    except OSError as error:
        parts.problem(f"the logs of processes could not be read: {error}")
    for name, number in parts.unlogged.items():
        parts.problem(f"{number} lines in the log of {name} are in no row of node_log")


def _write_about(parts: Parts, problems: Sequence[str]) -> dict[str, Any]:
    """Write RUN/run.json and return its content."""
    scenario, options = parts.scenario, parts.options
    nodes = list(parts.cluster.nodes)
    mode = MODES[scenario.mode]
    contract = {
        "durability": mode.durability,
        "flush": scenario.flush,
        "duplicates": "at-least-once",
        "late_ms_max": LATE_MS_MAX,
        "late_ms_half_max": LATE_MS_HALF_MAX,
        "recovery_ms_max": RECOVERY_MS_MAX,
        "availability_min": AVAILABILITY_MIN,
        "offsets_settle_ms": mode.offsets_settle_ms,
    }
    about = {
        "run_id": parts.run_id,
        "run_tag": run_tag(parts.run_id),
        "scenario": scenario.name,
        "seed": options.seed,
        "backend": parts.cluster.backend,
        "mutant": options.mutant,
        "topic": TOPIC,
        "topics": list(parts.plan.topics),
        "group": MAIN_GROUP,
        "groups": list(parts.plan.consumed),
        "modes": parts.plan.modes,
        "reconsume_max": parts.plan.reconsume_max,
        "check_back": CHECK_BACK,
        "subscriptions": parts.plan.subscriptions,
        "tables": tables_of(mode.name, decided=parts.decisions is not None),
        "exits": [row for row in parts.exits if row["process"] != "proxy"],
        "nodes": nodes,
        "mode": mode.name,
        "raft_group": group_of(mode.name),
        "quorum": copies(mode.durability, len(nodes)),
        "t0_wall_us": parts.t0_wall_us,
        "t0_mono_ns": parts.view.t0_ns,
        "phases": parts.phases(),
        "contract": contract,
        "coverage": dict(scenario.coverage),
        "problems": list(problems),
        "client_errors": dict(parts.workers.errors()),
        "log_lines_left_out": parts.unlogged,
        "plan": asdict(scenario),
    }
    (options.run / "run.json").write_text(json.dumps(about, indent=2) + "\n")
    return about


def tables_of(mode: str, *, decided: bool) -> list[str]:
    """Return the tables that a run records; ``decided``: controllers choose its masters."""
    besides = [*([RAFT_EVENT] if mode == RAFT else []), *([MASTERS] if decided else [])]
    return [*RECORDED, *besides]


def run_row(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the table ``runs`` that stands for a run.json."""
    return {
        "run_id": about["run_id"],
        "scenario": about["scenario"],
        "seed": about["seed"],
        "backend": about["backend"],
        "config": about["plan"],
        "t0_wall": about["t0_wall_us"],
        "contract": about["contract"],
    }


def convert_interrupted(run: Path) -> None:
    """Make the tables of a run of ours whose harness died before it could, or amid them."""
    made = (run / "tables" / LAST_TABLE).exists()
    if not made and (run / "raw").is_dir() and (run / "run.json").is_file():
        with contextlib.suppress(ValueError):  # a broken run.json: whoever reads it next says so
            about = json.loads((run / "run.json").read_text())
            try:
                row = run_row(about)
            except (LookupError, TypeError):  # JSON, and not of a run of ours
                return
            convert(run, row)
