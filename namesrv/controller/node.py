"""One controller: its Raft, who it hears from, and the elections that it asks for while it leads.

The order at a decision: the command is in the journals of a majority, synced; all of them apply it;
then whoever asked is answered.
"""

import asyncio
import logging
from typing import Final

from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import Closeable, Disk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import Supervisor
from namesrv.controller.commands import BadCommand, Code, Command, Elect, Outcome, encode_command
from namesrv.controller.config import ControllerConfig
from namesrv.controller.limits import PROPOSALS_MAX
from namesrv.controller.links import Links
from namesrv.controller.liveness import Heard, Liveness
from namesrv.controller.notices import Notices
from namesrv.controller.raft import Raft
from namesrv.controller.state import Group, Groups
from namesrv.controller.wire import Message

_log: Final = logging.getLogger(__name__)

TURN_MS: Final = 20
WATCH_MS: Final = 100
DECISION_MS: Final = 3_000
"""How long whoever asks waits for a majority."""
GRACE_MS: Final = 3_000
"""A controller that begins to lead takes nobody for dead for so long."""
DOUBT_MS: Final = 3_000
"""So long it is heard who has most, where all that were in sync may lack the end of their log."""
AGAIN_MS: Final = 1_000
"""After an election that nobody could win the next one is asked for after so long."""


class NotDecided(Exception):  # noqa: N818  # says what is
    """There is no decision, or it is not known here; the message says why."""


class Controller:
    """One of the controllers; a coroutine of its owner's loop runs all of it."""

    def __init__(
        self, config: ControllerConfig, clock: Clock, disk: Disk, tasks: Supervisor
    ) -> None:
        self.config = config
        self._clock = clock
        self._disk = disk
        self._tasks = tasks
        self.liveness = Liveness()
        self.notices = Notices()
        self._raft: Raft | None = None
        self._lock: Closeable | None = None
        self._links: Links | None = None
        self._soon = tasks.alarm("controller", self._turn)
        self._proposals = 0
        self._leads_since_ms: int | None = None
        self._watched_ms = clock.monotonic_ms()
        self._electing: dict[str, int] = {}
        """Groups for which an election was asked for, and when."""
        self._doubts: dict[str, int] = {}
        """Groups whose replicas are heard before one is elected, and since when."""

    def start(self, links: Links) -> None:
        """Read the files, and dial the others by ``links``.

        Errors: `FatalError` for files that cannot be, and a directory that is in use.
        """
        directory = self.config.store_path
        self._disk.make_directories(directory)
        try:
            self._lock = self._disk.lock(f"{directory}/lock")
        except NotADirectoryError as error:
            raise FatalError(f"controllerStorePath={directory} is not a directory") from error
        self._links = links
        own, others = self.config.own_id, self.config.others
        self._raft = Raft(own, others, self._disk, directory, links.post)
        links.start(self)
        self._tasks.every("controller's turns", TURN_MS, self._turn)
        self._tasks.every("controller's elections", WATCH_MS, self._watch)
        _log.info("event=controller_started id=%s term=%d", own, self._raft.term)

    async def stop(self) -> None:
        """Close everything; timers are the owner's."""
        if self._links is not None:
            await self._links.stop()
        if self._raft is not None:
            self._raft.destroy()
        if self._lock is not None:
            self._lock.close()

    # What it knows

    @property
    def raft(self) -> Raft:
        """Its Raft, once it has started."""
        assert self._raft is not None, "not started"
        return self._raft

    @property
    def leads(self) -> bool:
        """Whether its answers count."""
        return self.raft.leads

    @property
    def leader(self) -> str:
        """Id of who leads as far as is known here, empty if nobody is."""
        found = self.raft.leader
        return "" if found is None else found

    @property
    def groups(self) -> Groups:
        """All groups as they are applied here."""
        return self.raft.machine.groups

    def alive(self, name: str, group: Group) -> tuple[int, ...]:
        """Return who of a group was heard of lately where it is registered, who has most first."""
        found = self.liveness.alive(name, tuple(group.replicas), self._clock.monotonic_ms())
        return tuple(one for one in found if self._is_at_home(name, group, one))

    def _is_at_home(self, name: str, group: Group, one: int) -> bool:
        heard = self.liveness.get(name, one)
        return heard is not None and heard.address == group.replicas[one].address

    def older_log(self, name: str, group: Group) -> int:
        """Return who has a log from before there were controllers, while the master has none; or 0.

        The master may have something by now: it alone knows, and may give way.
        """
        master = self.liveness.get(name, group.master)
        if master is None or master.max_offset:
            return 0
        found = ((one, self.liveness.get(name, one)) for one in self.alive(name, group))
        return next(
            (one for one, heard in found if heard and heard.max_offset and not heard.epoch), 0
        )

    def hear(self, name: str, one: int, heard: Heard) -> bool:
        """Remember a heartbeat; False if there is no room."""
        return self.liveness.hear(name, one, heard)

    def on_connection_closed(self, connection_id: int) -> None:
        """Take who was heard over a connection for dead, at once."""
        self.notices.on_connection_closed(connection_id)
        for name, one in self.liveness.on_connection_closed(connection_id):
            _log.info("event=replica_gone broker=%s id=%d reason=connection_closed", name, one)

    # What it decides

    async def decide(self, command: Command) -> Outcome:
        """Have a command applied by a majority; return how it ended.

        Errors: `NotDecided`: it was not taken, or that is not known.
        """
        try:
            payload = encode_command(command)
        except BadCommand as error:
            return Outcome(Code.INVALID_REQUEST, str(error))
        if not self.leads:
            raise NotDecided(f"the controller that leads is {self.leader or 'not known'}")
        if self._proposals >= PROPOSALS_MAX:
            raise NotDecided("too many commands wait; try again")
        decided: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome | None, why: str) -> None:
            if decided.done():
                return
            if outcome is None:
                decided.set_exception(NotDecided(why))
            else:
                decided.set_result(outcome)

        self._proposals += 1
        try:
            self.raft.propose(payload, done)
            self._soon.set(0)
            async with timeout(DECISION_MS / 1000):
                return await decided
        except TimeoutError:
            why = f"no majority within {DECISION_MS} ms; it may be taken later"
            raise NotDecided(why) from None
        finally:
            self._proposals -= 1

    # What the links hear

    def receive(self, peer: str, message: Message) -> None:
        """Take a message of another controller; what fails then ends the process."""
        try:
            self.raft.receive(peer, message)
        except Exception as error:  # noqa: BLE001 - not the failure of one request
            self._tasks.on_error("controller", error)
        self._soon.set(0)

    def on_link(self, peer: str, *, is_up: bool) -> None:
        """Learn that messages reach a peer, or do not."""
        self.raft.on_link(peer, is_up=is_up)

    # What it does by itself

    def _turn(self) -> None:
        self.raft.turn()
        self.notices.tell(self.groups)

    def _watch(self) -> None:
        """Ask for the elections that are due, while it leads."""
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._watched_ms - WATCH_MS
        self._watched_ms = now_ms
        if late_ms > WATCH_MS:  # this process stood still, and has not read what came meanwhile
            self.liveness.excuse(late_ms, now_ms)
        for name, one in self.liveness.expire(now_ms):
            _log.info("event=replica_gone broker=%s id=%d reason=silent", name, one)
        if not self.leads:
            if self._leads_since_ms is not None:
                _log.info("event=controller_leads_no_more id=%s", self.config.own_id)
            self._leads_since_ms = None
            self._doubts.clear()
            return
        if self._leads_since_ms is None:
            self._leads_since_ms = now_ms
            _log.info("event=controller_leads id=%s term=%d", self.config.own_id, self.raft.term)
        if now_ms - self._leads_since_ms < GRACE_MS:
            return
        for name, group in self.groups.items():
            if group.master_epoch and now_ms - self._electing.get(name, -AGAIN_MS) >= AGAIN_MS:
                self._maybe_elect(name, group, now_ms)

    def _maybe_elect(self, name: str, group: Group, now_ms: int) -> None:
        """Ask for a master if the last one is gone and there is somebody to elect."""
        alive = self.alive(name, group)
        unclean = self.config.elect_unclean
        if group.master in alive or not (set(alive) & set(group.in_sync) or (alive and unclean)):
            self._doubts.pop(name, None)
            return
        if group.in_doubt and not self._has_heard_all(name, group, alive, now_ms):
            return
        self._electing[name] = now_ms
        command = Elect(group=name, master_epoch=group.master_epoch, alive=alive, unclean=unclean)
        self._tasks.serve(f"election of {name}", self._elect(command))

    def _has_heard_all(self, name: str, group: Group, alive: tuple[int, ...], now_ms: int) -> bool:
        """Tell whether all replicas have said how much they have, or had the time to."""
        begun_ms = self._doubts.setdefault(name, now_ms)
        return len(alive) == len(group.replicas) or now_ms - begun_ms >= DOUBT_MS

    async def _elect(self, command: Elect) -> None:
        try:
            outcome = await self.decide(command)
        except NotDecided as error:
            _log.warning("event=not_elected broker=%s reason=%r", command.group, str(error))
            return
        if outcome.code is Code.SUCCESS and outcome.group is not None:
            self._electing.pop(command.group, None)
            self._doubts.pop(command.group, None)
            _log.info(
                "event=master_elected broker=%s id=%d epoch=%d",
                command.group, outcome.group.master, outcome.group.master_epoch,
            )  # fmt: skip
        else:
            _log.warning("event=not_elected broker=%s reason=%r", command.group, outcome.remark)
