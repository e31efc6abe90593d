"""The nemesis: performs the timeline's steps as operations, and keeps a record of each fault.

A client of the interpreter like any other; its completions are always ``info``, because a fault's
effect is for the witness to say. Source: Jepsen nemesis; spec/proof.md 4.3, 4.4.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from chaos.backends.base import ClusterFailed
from chaos.catalogue.kinds import FaultSpec
from chaos.generator import Op, Stream
from chaos.interpreter import Completion
from chaos.nemesis.base import Fault, FaultRecord, Setting
from chaos.nemesis.journal import UndoJournal, lift
from chaos.nemesis.kinds import FAULTS
from chaos.nemesis.wait import until
from chaos.record import Recorder

Notice = Callable[[str], None]
HEALTHY_TIMEOUT_S = 20.0
LOOKS = 3
"""How often a look waits for health anew, because the leader has stepped down meanwhile."""
HIT_PROCESSES = frozenset({"restart", "resume"})
"""How faults are lifted that take a process that runs."""


class Nemesis:
    """Performs steps on one cluster."""

    def __init__(  # noqa: PLR0913 - the parts of a run that it works with
        self,
        *,
        setting: Setting,
        recorder: Recorder,
        journal: UndoJournal,
        stream: Stream,
        last_ack_ns: Callable[[], int],
        notice: Notice,
        on_healthy: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``on_healthy`` is called before each round of faults, when all is well and none is on."""
        self.records: dict[str, FaultRecord] = {}
        self.active: dict[str, Fault] = {}
        self.problems: list[str] = []
        """Steps that are no faults, and failed: no witness tells of them."""
        self._setting = setting
        self._recorder = recorder
        self._journal = journal
        self._stream = stream
        self._last_ack_ns = last_ack_ns
        self._notice = notice
        self._on_healthy = on_healthy
        self._roles: dict[str, str] = {}
        self._looks = 0
        self._begun_ns = setting.clock.monotonic_ns()
        self._draws = 0

    def plan(self, faults: Iterable[tuple[str, FaultSpec]]) -> None:
        """Write down every fault that is going to be applied, before anything happens."""
        for name, fault in faults:
            complete = FAULTS[fault.kind.nemesis].complete(fault.parameters)
            record = FaultRecord(
                fault_id=name,
                kind=fault.kind.nemesis,
                parent_id=name.rpartition("-")[0],
                spec={"targets": list(fault.target), **complete},
            )
            self.records[name] = record
            self._save(record)

    def prepare(self, op: Op) -> Mapping[str, Any]:
        """Return the operation's arguments."""
        return op.value

    async def invoke(self, op: Op, prepared: Mapping[str, Any]) -> Completion:
        """Perform a step. Errors: what nobody foresaw; it is among the problems then, too."""
        try:
            said = await self._perform(op)
        except Exception as error:
            self.problems.append(f"a step of the timeline failed: {op.f}: {_told(error)}")
            raise
        return Completion(type="info", value={**prepared, "said": said})

    async def _perform(self, op: Op) -> str:
        match op.f:
            case "look":
                return await self._look(patient=op.value.get("what") != "now")
            case "start":
                return await self.start(op)
            case "stop":
                return await self.stop(str(op.value["name"]))
            case "switch":
                return await self._switch(op.value["targets"])
            case "await":
                return await self._await(str(op.value["what"]), op.value)
            case other:
                raise ValueError(f"no step does {other!r}")

    async def start(self, op: Op) -> str:
        """Apply a fault; one that cannot be applied is skipped or failed, and does not count."""
        record = self.records[str(op.value["name"])]
        now = self._setting.clock.monotonic_ns
        record.t_sched = now()
        targets = op.value.get("targets") or []
        assert isinstance(targets, list)
        nodes = self._nodes(targets)
        if not all(nodes):
            return self._end(record, "skipped", f"no node is {' or '.join(map(str, targets))}")
        parameters = op.value.get("parameters") or {}
        assert isinstance(parameters, dict)
        kind = FAULTS[record.kind]
        setting = replace(self._setting, stream=self._stream.split(record.fault_id))
        try:
            fault = kind.make(setting, *nodes, **kind.complete(parameters))
        except ClusterFailed as error:
            return self._end(record, "skipped", str(error))
        record.targets, record.witness = fault.targets, fault.witness
        record.method = self._method(record.kind)
        try:
            await fault.probe_before()
            record.targets = fault.targets  # some are chosen by what was seen
            self._see_they_run(fault)
            self._journal.will_apply(record.fault_id, fault.undo_entry())
            record.t_on0 = now()
            await fault.apply()
            record.t_on1 = now()
            record.status = "active"
            self.active[record.fault_id] = fault
            self._save(record)
            self._notice(f"{record.kind} {' - '.join(fault.targets)}")
            await fault.probe_during()
        except Exception as error:  # noqa: BLE001 - what nobody foresaw has failed, too
            return await self._give_up(record, fault, _told(error))
        self._save(record)
        return "active"

    def _see_they_run(self, fault: Fault) -> None:
        """Look whether brokers run that are to be ended or frozen. Errors: ClusterFailed if not.

        Another fault has ended them: there is nothing to apply, and nothing of this one to lift.
        """
        cluster = self._setting.cluster
        if fault.undo_entry()["do"] in HIT_PROCESSES:
            down = [node for node in fault.targets if cluster.state(node) == "gone"]
            if down:
                raise ClusterFailed(f"{' and '.join(down)} is not running")

    async def _give_up(self, record: FaultRecord, fault: Fault, why: str) -> str:
        """End a fault that failed. What of it may have begun is lifted at once.

        It stays in the journal: what is under way still is lifted once more in the end.
        """
        if record.t_on0 is None or record.fault_id in self.active:  # its own step lifts it
            return self._end(record, "failed", why)
        now = self._setting.clock.monotonic_ns
        try:
            record.t_off0 = now()
            await lift(self._setting.cluster, fault.undo_entry())
            record.t_off1 = now()
        except Exception as error:  # noqa: BLE001 - as above
            return self._end(record, "heal_failed", f"{why}; {_told(error)}")
        return self._end(record, "failed", why)

    async def stop(self, name: str) -> str:
        """Lift a fault that is active."""
        record, fault = self.records[name], self.active.pop(name, None)
        if fault is None:
            return f"not active: {record.status}"
        now = self._setting.clock.monotonic_ns
        try:
            record.t_off0 = now()
            await fault.undo()
            record.t_off1 = now()
            self._journal.undone(name)
            self._notice(f"end of {record.kind} {' - '.join(fault.targets)}")
            await fault.probe_after()
        except Exception as error:  # noqa: BLE001 - as above
            return self._end(record, "heal_failed", _told(error))
        return self._end(record, "healed", "effective" if fault.witness.effective else "no effect")

    async def heal(self) -> None:
        """Lift whatever is still active, last first."""
        for name in reversed(list(self.active)):
            await self.stop(name)

    def close_plan(self) -> None:
        """Mark the faults that were never reached, and those that may be half applied."""
        for record in self.records.values():
            if record.status == "planned":
                begun = record.t_on0 is not None
                status, when = ("failed", "amid") if begun else ("skipped", "before")
                self._end(record, status, f"the timeline ended {when} it")

    def lost_alone(self) -> int:
        """Return how many messages were only on disks that faults took."""
        seen = [r.witness for r in self.records.values() if r.witness is not None]
        return sum(witness.only_there or 0 for witness in seen if witness.effective)

    async def _look(self, *, patient: bool) -> str:
        """Bind the roles to nodes, once the cluster is healthy, or as it is now."""
        probe = self._setting.probe
        fine = await self._settled() if patient else probe.healthy()
        leader = probe.leader()
        followers = sorted(node for node in self._setting.cluster.nodes if node != leader)
        self._looks += 1
        if self._stream.u64(self._looks) & 1:
            followers.reverse()
        self._roles = dict(zip(("follower", "other"), followers, strict=False))
        if leader is not None:
            self._roles["leader"] = leader
        return f"healthy={fine} {self._roles}"

    async def _settled(self) -> bool:
        """Wait until all is well and a node leads: it may step down during ``on_healthy``."""
        probe, fine = self._setting.probe, False

        async def healthy() -> bool:
            return probe.healthy()

        for _ in range(LOOKS):
            fine = await until(healthy, HEALTHY_TIMEOUT_S)
            if fine and not self.active and self._on_healthy is not None:
                await self._on_healthy()
            if not fine or probe.leader() is not None:
                break
        return fine

    async def _switch(self, targets: object) -> str:
        """Make a slave the master, as a person would."""
        assert isinstance(targets, list)
        node = self._roles.get(targets[0], "")
        if not node:
            return self._not_switched(f"no node is {targets[0]}")
        try:
            await self._setting.cluster.make_master(node)
        except ClusterFailed as error:
            return self._not_switched(str(error))
        self._notice(f"{node} is made the master by hand")
        return node

    def _not_switched(self, why: str) -> str:
        self.problems.append(f"not switched by hand: {why}")
        return f"failed: {why}"

    async def _await(self, what: str, value: Mapping[str, object]) -> str:
        since_ns = self._setting.clock.monotonic_ns()
        probe = self._setting.probe

        async def holds() -> bool:
            if what == "leader":
                return probe.leader() not in {None, self._roles.get("leader")}
            if what == "acks":
                return self._last_ack_ns() >= since_ns
            return probe.healthy()

        within_s = float(str(value.get("within_s", 10)))
        if what in {"at", "time"}:
            begin_ns = self._begun_ns if what == "at" else since_ns
            await asyncio.sleep(max(0.0, (begin_ns - since_ns) / 1e9 + within_s))
            return "it is time"
        return "yes" if await until(holds, within_s) else f"not within {within_s:.0f} s"

    def _nodes(self, targets: list[str]) -> list[str]:
        """Return the nodes that roles stand for; an empty name for a role that nobody has."""
        every = list(self._setting.cluster.nodes)
        if targets == ["all"]:
            return every
        self._draws += 1
        draw = self._stream.split("any").u64(self._draws)
        taken = {self._roles.get(role, "") for role in targets}
        found = []
        for role in targets:
            free = [node for node in every if node not in taken]
            drawn = free[draw % len(free)] if free else ""
            found.append(drawn if role == "any" else self._roles.get(role, ""))
            taken.add(found[-1])
        return found

    def _method(self, kind: str) -> str:
        return FAULTS[kind].method or self._setting.cluster.links.method

    def _end(self, record: FaultRecord, status: str, why: str) -> str:
        record.status = status
        record.spec = {**record.spec, "said": why}
        self._save(record)
        if status in {"skipped", "failed", "heal_failed"}:
            self._notice(f"{record.fault_id} {status}: {why}")
        return f"{status}: {why}"

    def _save(self, record: FaultRecord) -> None:
        self._recorder.write("faults", record.row())


def _told(error: Exception) -> str:
    """Return the words of an error; of one that we do not raise ourselves its name, too."""
    return str(error) if isinstance(error, ClusterFailed) else f"{type(error).__name__}: {error}"
