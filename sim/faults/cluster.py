"""Faults of clocks, and what operators do: members come and go, leadership is handed over.

An order to add a member may come at a bad moment: what the newcomer is sent does not arrive, or the
leader's disk has no room for the entry that says who the members are.

Source: spec/proof.md T1, T2, C1, C2.
"""

import errno
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from dledger.core.configuration import Change, ChangeKind
from dledger.core.model import NodeId
from sim.disk_rules import Action, Op, Rule
from sim.faults.stage import Effect
from sim.faults.target import Node
from sim.rules import Action as FrameAction
from sim.rules import FrameRule, peer_codes


class Step(NamedTuple):
    """One thing that is asked of a leader."""

    give: Callable[[Node], Awaitable[None]]
    objection: Callable[[], str]
    """Says why it must not be asked now, by the budget; nothing if it may."""


ASK_MS: Final = 250
"""How long after a refusal, or no answer, an operator asks again."""
ALREADY: Final = "already"
"""In what the leader says to a step that was done before."""
TOO_FEW: Final = "too few would be left"
NO_ROOM_MS: Final = 300
"""The leader's disk has room again so long after an entry found none."""
VOTERS_MIN: Final = 3
"""No member is removed if fewer would be left."""


class ClockJump(Effect):
    """The wall clock is set."""

    _jumps = 0

    def apply(self) -> None:
        """Set it."""
        self._jumps = 1
        self.target.host(self.name).clock.jump(int(self.event.number("ms")))

    def undo(self) -> None:
        """Set it back, where the plan says so."""
        if self.event.number("back"):
            self.target.host(self.name).clock.jump(-int(self.event.number("ms")))

    def count(self) -> float:
        """Return how often it was set."""
        return self._jumps


class ClockDrift(Effect):
    """The clock runs at another rate."""

    _changes = 0

    def apply(self) -> None:
        """Change the rate."""
        self._changes = 1
        self.target.host(self.name).clock.set_rate(self.event.number("rate", 1.0))

    def undo(self) -> None:
        """Let it run as it should; how far it went stays."""
        self.target.host(self.name).clock.set_rate(1.0)

    def count(self) -> float:
        """Return how often it was changed."""
        return self._changes


class ClockStrobe(Effect):
    """The wall clock jumps to and fro."""

    _jumps = 0

    def apply(self) -> None:
        """Begin."""
        self._is_over = False
        self._turn()

    def undo(self) -> None:
        """End where it began."""
        self._is_over = True
        if self._jumps % 2:
            self._jump()

    def count(self) -> float:
        """Return how often it has jumped."""
        return self._jumps

    def _jump(self) -> None:
        sign = -1 if self._jumps % 2 else 1
        self.target.host(self.name).clock.jump(sign * int(self.event.number("ms")))
        self._jumps += 1

    def _turn(self) -> None:
        if not self._is_over:
            self._jump()
            self.stage.after(self.event.number("period_ms", 100), self._turn)


class Order(Effect):
    """Something is asked of the leader, as an operator does: again and again, while it is on."""

    steps: int = 0
    """How many of its steps were done."""
    refusal: str = ""
    """What was said last."""
    is_over = False

    @abstractmethod
    def todo(self) -> list[Step]:
        """Return what is to be asked, one step after the other."""

    def apply(self) -> None:
        """Ask for the first time."""
        self._todo = self.todo()
        self._ask()

    def undo(self) -> None:
        """Ask no more."""
        self.is_over = True

    def count(self) -> float:
        """Return how many steps were done."""
        return self.steps

    def _ask(self) -> None:
        """Ask in the process of the leader."""
        if self.is_over or not self._todo:
            return
        leader = self.target.leader()
        self.refusal = self._todo[0].objection()
        if leader is None:
            self.refusal = "nobody leads"
        elif not self.refusal or self.target.plan.options.overkill:
            self.target.run_on(leader, self._give(leader))
        self.stage.after(ASK_MS, self._ask)

    async def _give(self, leader: str) -> None:
        node = self.target.node(leader)
        if node is None or not self._todo:
            return  # it was held up, and asked again meanwhile
        step = self._todo[0]
        try:
            await step.give(node)
        except Exception as error:  # noqa: BLE001 - a refusal, whatever it is called
            self.refusal = f"{type(error).__name__}: {error}"
            if ALREADY not in self.refusal:
                return
        if self._todo[:1] == [step]:
            del self._todo[0]
            self.steps += 1

    def change(self, kind: ChangeKind, name: str) -> Step:
        """Return one step of a change of members."""
        address = self.target.peer_address(name) if kind is ChangeKind.ADD_LEARNER else ""

        async def give(node: Node) -> None:
            await node.operations.change_membership(Change(kind, NodeId(name), address))

        def objection() -> str:
            voters = [one for one in self.stage.voters() if one != name]
            if kind is ChangeKind.ADD_LEARNER:
                return ""
            if kind is ChangeKind.PROMOTE:
                voters.append(name)
            elif len(voters) < VOTERS_MIN:  # another order may have come first
                return TOO_FEW
            return self.stage.guard.objection_to(voters)

        return Step(give, objection)


class Add(Order):
    """A broker joins: it is started, follows as a learner, and is promoted.

    Parameters: ``held_back``: entries and snapshots for it are lost as long as the order is on;
    ``no_room``: what each step has the leader write first finds no space, once.
    """

    _lost: tuple[FrameRule, ...] = ()
    _refused = 0

    def obstacle(self) -> str:
        """See `Effect`."""
        return "" if self.spare() else "all brokers are members"

    def todo(self) -> list[Step]:
        """See `Order`."""
        rejoin = self.spare()
        assert rejoin is not None
        if self.event.number("held_back"):
            self._hold_back(rejoin)
        self.target.start(rejoin)
        kinds = (ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE)
        steps = [self.change(kind, rejoin) for kind in kinds]
        return [self._without_room(one) for one in steps] if self.event.number("no_room") else steps

    def undo(self) -> None:
        """Ask no more, and let what is sent arrive."""
        super().undo()
        for rule in self._lost:
            self.target.network.remove_rule(rule)

    def count(self) -> float:
        """Return how many steps were done, entries lost or refused."""
        return super().count() + sum(rule.applied for rule in self._lost) + self._refused

    def _hold_back(self, rejoin: str) -> None:
        codes = peer_codes("Append", "InstallSnapshot")
        address = self.stage.address(rejoin)
        rule = FrameRule(FrameAction.DROP, None, address, codes=codes)
        self._lost = (rule,)
        self.target.network.add_rule(rule)

    def _without_room(self, step: Step) -> Step:
        """Return a step that is asked for a first time when the disk is full."""
        met = False

        async def give(node: Node) -> None:
            nonlocal met
            leader = self.target.leader()
            if not met and leader is not None:
                met = True
                self._fill(leader)
            await step.give(node)

        return Step(give, step.objection)

    def _fill(self, leader: str) -> None:
        self.stage.excused[leader] = None
        disk = self.target.disk(leader)
        ops, glob = frozenset({Op.WRITE}), "*/data/*"
        rule = Rule(action=Action.FAIL, ops=ops, glob=glob, count=1, error=errno.ENOSPC)
        disk.add_rule(rule)

        def free() -> None:
            self._refused += rule.hits
            disk.drop_rule(rule)

        self.stage.after(NO_ROOM_MS, free)

    def spare(self) -> str | None:
        """Return a broker that is no member."""
        voters = self.stage.voters()
        return next((name for name in self.target.brokers() if name not in voters), None)


class Remove(Order):
    """A member leaves; its process goes on and must not disturb."""

    def obstacle(self) -> str:
        """See `Effect`."""
        return "" if len(self.stage.voters()) > VOTERS_MIN else TOO_FEW

    def todo(self) -> list[Step]:
        """See `Order`."""
        return [self.change(ChangeKind.REMOVE, self.name)]


class Replace(Add):
    """A broker joins, then a member leaves."""

    def todo(self) -> list[Step]:
        """See `Order`."""
        return [*super().todo(), self.change(ChangeKind.REMOVE, self.name)]


class Transfer(Order):
    """Leadership is handed to a follower."""

    def todo(self) -> list[Step]:
        """See `Order`."""

        async def give(node: Node) -> None:
            await node.operations.transfer_leadership(NodeId(self.name))

        return [Step(give, lambda: "")]
