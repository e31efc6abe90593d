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
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from chaos.backends.base import Cluster, ClusterFailed, ClusterSpec
from chaos.backends.local import LocalCluster
from chaos.convert import convert
from chaos.dump import dump_events, dump_replicas
from chaos.generator import Script, Stream
from chaos.history.payload import run_tag
from chaos.interpreter import Interpreter, Slots
from chaos.nemesis.base import Setting
from chaos.nemesis.journal import UndoJournal, heal_all
from chaos.nemesis.runner import Nemesis
from chaos.nemesis.wait import until
from chaos.probe import NodeStatus, Probe, settled
from chaos.record import Recorder
from chaos.scenario import Scenario, as_script, planned_faults
from chaos.view import View
from chaos.workers import Workers
from chaos.workload.audit import GROUP as AUDITOR
from chaos.workload.audit import (
    QueueEnds,
    audit_queue,
    auditor,
    drain_rows,
    queue_ends,
)
from chaos.workload.worker import WorkerSpec
from client import ClientConfig, MessageQueue, Producer, RemotingError
from runtime.cancel import timeout
from runtime.clock import SystemClock

TOPIC = "chaos-queue"
GROUP = "chaos-group"
TOPIC_TIMEOUT_S = 15.0
HEALTHY_TIMEOUT_S = 20.0
SETTLE_TIMEOUT_S = 6.0
COUNTS_EVERY_S = 0.25
PROCESSES_PER_WORKER = 10_000
CONSUMER_BACK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the caller chooses besides the scenario."""

    run: Path
    seed: int = 0
    backend: str = "local"
    mutant: str | None = None


@dataclass(slots=True, kw_only=True)
class _Parts:
    """What a run works with while it goes on."""

    scenario: Scenario
    options: RunOptions
    view: View
    run_id: str
    cluster: Cluster
    recorder: Recorder
    workers: Workers
    probe: Probe
    clock: SystemClock
    problems: list[str] = field(default_factory=list)
    statuses: dict[str, NodeStatus] = field(default_factory=dict)
    t0_wall_us: int = 0

    def phase(self, name: str, text: str) -> None:
        """Mark the beginning of a phase in the history and on the screen."""
        self.event("phase", {"name": name})
        self.view.phase(name, text)

    def event(self, f: str, value: dict[str, Any]) -> None:
        """Record an event of the harness."""
        row = {"worker": 0, "process": 0, "role": "harness", "type": "info", "f": f}
        row |= {"t_mono_ns": self.clock.monotonic_ns(), "value": value}
        self.recorder.write("events", row)

    def problem(self, text: str) -> None:
        """Note what went wrong with the run itself."""
        self.problems.append(text)
        self.view.notice(f"problem: {text}")


def make_cluster(spec: ClusterSpec, backend: str) -> Cluster:
    """Return a cluster of the backend, not started. Errors: ClusterFailed for an unknown one."""
    if backend == "docker":
        from chaos.backends.docker import DockerCluster  # noqa: PLC0415 - needs an engine

        return DockerCluster(spec)
    if backend != "local":
        raise ClusterFailed(f"no backend is called {backend!r}")
    return LocalCluster(spec)


async def run_scenario(scenario: Scenario, options: RunOptions, view: View) -> Path:
    """Run a scenario and return the run directory with its history.

    Errors: ClusterFailed if the cluster does not start; OSError if the directory is in use.
    """
    run = options.run
    run.mkdir(parents=True, exist_ok=False)
    (run / "config").mkdir()
    clock = SystemClock()
    spec = ClusterSpec(run=run, flush=scenario.flush, mutant=options.mutant, seed=options.seed)
    cluster = make_cluster(spec, options.backend)
    with Recorder(run / "raw" / "harness.jsonl") as recorder:
        parts = _Parts(
            scenario=scenario,
            options=options,
            view=view,
            run_id=uuid.uuid4().hex,
            cluster=cluster,
            recorder=recorder,
            workers=Workers(run),
            probe=Probe(cluster, recorder, clock),
            clock=clock,
            t0_wall_us=clock.wall_ms() * 1000,
        )
        # Should the harness die, this and the recordings are enough to judge what there is.
        _write_about(parts, ["the run was interrupted"])
        try:
            await _live(parts)
        except BaseException:
            await _put_down(parts)
            await cluster.remove()
            raise
        await _put_down(parts)
        await _collect(parts)
        await cluster.remove()
    convert(run, run_row(_write_about(parts, parts.problems)))
    return run


async def _live(parts: _Parts) -> None:
    """Everything that needs a running cluster."""
    scenario, workers = parts.scenario, parts.workers
    nodes = len(parts.cluster.nodes)
    parts.phase("start", f"{nodes} brokers, name servers, backend {parts.cluster.backend}")
    await parts.cluster.start()
    parts.probe.start()
    await _create_topic(parts)
    await workers.start("consumer", _specs(parts, "consumer"))
    await workers.start("producer", _specs(parts, "producer"))
    load = scenario.workload
    async with _shown_counts(parts):
        producers, consumers = load.producers, load.consumers
        text = f"{producers} producers, {consumers} consumers, {load.rate:.0f} messages/s"
        parts.phase("warmup", text)
        await asyncio.sleep(scenario.warmup_s)
        parts.phase("baseline", "no faults yet")
        await asyncio.sleep(scenario.baseline_s)
        parts.phase("main", f"{len(planned_faults(scenario))} faults")
        crash = asyncio.create_task(_crash_consumer(parts))
        await _timeline(parts)
        await crash
        parts.phase("quiesce", "no faults any more, still sending")
        await asyncio.sleep(scenario.quiesce_s)
        await workers.stop("producer")
        ends = await _drain(parts)
    await _audit(parts, ends)
    await _last_statuses(parts)


async def _put_down(parts: _Parts) -> None:
    """Stop everything, whatever happened before."""
    parts.phase("stop", "stopping the brokers")
    await parts.workers.kill_all()
    await parts.probe.stop()
    parts.problems += [f"unexpected end: {line}" for line in parts.cluster.unexpected_exits()]
    await parts.cluster.stop()


async def _create_topic(parts: _Parts) -> None:
    """Create the topic as soon as there is a leader. Errors: ClusterFailed."""
    config = ClientConfig(
        namesrv_addrs=parts.cluster.name_server_addrs(), group="chaos-setup", instance_name="setup"
    )
    last: list[str] = []
    async with Producer(config) as producer:

        async def created() -> bool:
            try:
                await producer.create_topic(TOPIC, parts.scenario.workload.queues)
                return len(await producer.fetch_publish_queues(TOPIC)) > 0
            except RemotingError as error:
                last[:] = [f"{type(error).__name__}: {error}"]
                return False

        if not await until(created, TOPIC_TIMEOUT_S):
            raise ClusterFailed(f"the topic could not be created: {' '.join(last)}")


def _specs(parts: _Parts, role: str) -> list[WorkerSpec]:
    load, cluster = parts.scenario.workload, parts.cluster
    count = load.producers if role == "producer" else load.consumers
    base = 1 if role == "producer" else 51
    addrs = {":".join(map(str, cluster.status_addr(n))): n for n in cluster.nodes}
    run = parts.options.run
    return [
        WorkerSpec(
            run_id=parts.run_id,
            name=f"{role}-{at}",
            worker=base + at,
            raw=str(run / "raw" / f"{role}-{at}.jsonl"),
            namesrv_addrs=cluster.name_server_addrs(),
            node_by_addr=addrs,
            topic=TOPIC,
            group=GROUP,
            seed=parts.options.seed,
            seconds_max=parts.scenario.timeline_s_max + 120,
            processes=load.processes_each if role == "producer" else 1,
            first_process=(base + at) * PROCESSES_PER_WORKER,
            rate=load.rate / max(1, load.producers) / load.batches[at % len(load.batches)],
            batch=load.batches[at % len(load.batches)],
            sizes=load.sizes,
            send_timeout_ms=load.send_timeouts_ms[at % len(load.send_timeouts_ms)],
        )
        for at in range(count)
    ]


@contextlib.asynccontextmanager
async def _shown_counts(parts: _Parts) -> AsyncIterator[None]:
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


async def _crash_consumer(parts: _Parts) -> None:
    """Kill the first consumer and start another, which goes on from the group's offsets."""
    after_s = parts.scenario.crash_consumer_s
    if after_s is None:
        return
    await asyncio.sleep(after_s)
    first, *_ = _specs(parts, "consumer")
    if not await parts.workers.crash(first.name):
        return
    row = {"worker": first.worker, "process": first.first_process, "role": "consumer"}
    row |= {"type": "info", "f": "crash", "t_mono_ns": parts.clock.monotonic_ns()}
    parts.recorder.write("events", row | {"node": first.name, "value": {"consumer": first.name}})
    parts.view.notice(f"kill {first.name}; another takes its place")
    await asyncio.sleep(CONSUMER_BACK_S)
    await parts.workers.start("consumer", [_successor(parts, first)])


def _successor(parts: _Parts, spec: WorkerSpec) -> WorkerSpec:
    """Return the settings of the consumer that takes the place of one that died."""
    number = parts.scenario.workload.consumers
    name, worker = f"consumer-{number}", 51 + number
    raw = str(parts.options.run / "raw" / f"{name}.jsonl")
    first_process = worker * PROCESSES_PER_WORKER
    return msgspec.structs.replace(
        spec, name=name, worker=worker, raw=raw, first_process=first_process
    )


async def _timeline(parts: _Parts) -> None:
    """Perform the timeline and lift whatever is left."""
    stream = Stream(parts.options.seed, "nemesis")
    path = parts.options.run / "undo.jsonl"
    journal = UndoJournal(path)
    nemesis = Nemesis(
        setting=Setting(cluster=parts.cluster, probe=parts.probe, clock=parts.clock),
        recorder=parts.recorder,
        journal=journal,
        stream=stream,
        last_ack_ns=parts.workers.last_ack_ns,
        notice=parts.view.notice,
    )
    nemesis.plan(planned_faults(parts.scenario))
    slots = Slots(worker=0, role="nemesis", count=1, first_process=0)
    interpreter = Interpreter(
        client=nemesis, recorder=parts.recorder, clock=parts.clock, slots=slots
    )
    try:
        async with timeout(parts.scenario.timeline_s_max):
            await interpreter.run(Script(as_script(parts.scenario)))
    except TimeoutError:
        parts.problem(f"the timeline took over {parts.scenario.timeline_s_max:.0f} s")
    parts.phase("heal", "lifting every fault")
    await nemesis.heal()
    nemesis.close_plan()
    journal.close()
    for line in await heal_all(parts.cluster, path):
        parts.problem(f"not healed: {line}")

    async def healthy() -> bool:
        return parts.probe.healthy()

    if not await until(healthy, HEALTHY_TIMEOUT_S):
        parts.problem(f"the cluster was not healthy {HEALTHY_TIMEOUT_S:.0f} s after the heal")


async def _drain(parts: _Parts) -> dict[MessageQueue, QueueEnds]:
    """Wait until the group has committed everything, then stop the consumers; return the ends."""
    parts.phase("drain", "the group reads the rest")
    ends: dict[MessageQueue, QueueEnds] = {}
    async with auditor(parts.cluster.name_server_addrs()) as reader:

        async def drained() -> bool:
            nonlocal ends
            try:
                ends = await queue_ends(reader, TOPIC)
            except RemotingError:
                return False
            committed = parts.workers.committed()
            return bool(ends) and all(
                committed.get(queue.queue_id, 0) >= end.end_off for queue, end in ends.items()
            )

        if not await until(drained, parts.scenario.drain_s):
            late = {q.queue_id: e.end_off for q, e in ends.items()}
            committed = parts.workers.committed()
            parts.view.notice(f"not drained: ends {late}, committed {committed}")
    await parts.workers.stop("consumer")
    parts.problems += parts.workers.problems
    return ends


async def _audit(parts: _Parts, ends: dict[MessageQueue, QueueEnds]) -> None:
    """Read every queue from its beginning to its end and record the drain facts."""
    parts.phase("audit", f"reading {len(ends)} queues from their beginning")
    committed = parts.workers.committed()
    try:
        async with auditor(parts.cluster.name_server_addrs()) as reader:
            for queue in sorted(ends):
                final, empty = await audit_queue(reader, queue, parts.recorder, parts.clock)
                rows = drain_rows(GROUP, {queue: final}, committed, empty)
                everything = {queue.queue_id: final.end_off}
                rows += drain_rows(AUDITOR, {queue: final}, everything, empty)
                for row in rows:
                    parts.recorder.write("drain", row)
    except RemotingError as error:
        parts.problem(f"the audit failed: {type(error).__name__}: {error}")


async def _last_statuses(parts: _Parts) -> None:
    """Ask every node for its last word, once all hold the same if they come to."""

    async def at_rest() -> bool:
        states = [await parts.probe.ask(node) for node in parts.cluster.nodes]
        parts.statuses = {s.node: s for s in states if s.ok}
        return all(s.ok for s in states) and settled(states)

    if not await until(at_rest, SETTLE_TIMEOUT_S):
        parts.view.notice("the replicas did not come to rest at one commit index")


async def _collect(parts: _Parts) -> None:
    """Copy the replicas' logs. A node without a last word has only what it said before."""
    parts.phase("dump", "collecting the replicas' logs")
    statuses = {**parts.probe.last_seen, **parts.statuses}
    if set(statuses) != set(parts.cluster.nodes):
        parts.problem("not every node answered at the end; no logs were collected")
        return
    try:
        run = parts.options.run
        await dump_replicas(parts.cluster, run, statuses, "RaftGroup0")
        await dump_events(parts.cluster, run, parts.run_id)
    except (ClusterFailed, OSError) as error:
        parts.problem(f"the logs could not be collected: {error}")


def _write_about(parts: _Parts, problems: Sequence[str]) -> dict[str, Any]:
    """Write RUN/run.json and return its content."""
    scenario, options = parts.scenario, parts.options
    nodes = list(parts.cluster.nodes)
    contract = {"durability": "quorum", "flush": scenario.flush, "duplicates": "at-least-once"}
    about = {
        "run_id": parts.run_id,
        "run_tag": run_tag(parts.run_id),
        "scenario": scenario.name,
        "seed": options.seed,
        "backend": parts.cluster.backend,
        "mutant": options.mutant,
        "topic": TOPIC,
        "topics": [TOPIC],
        "group": GROUP,
        "groups": [GROUP],
        "nodes": nodes,
        "raft_group": "RaftGroup0",
        "quorum": len(nodes) // 2 + 1,
        "t0_wall_us": parts.t0_wall_us,
        "contract": contract,
        "coverage": dict(scenario.coverage),
        "problems": list(problems),
        "client_errors": dict(parts.workers.errors()),
        "plan": asdict(scenario),
    }
    (options.run / "run.json").write_text(json.dumps(about, indent=2) + "\n")
    return about


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
    """Make the tables of a run of ours whose harness died before it could."""
    if not (run / "tables").exists() and (run / "raw").is_dir() and (run / "run.json").is_file():
        with contextlib.suppress(ValueError):  # a broken run.json: whoever reads it next says so
            convert(run, run_row(json.loads((run / "run.json").read_text())))
