"""What the controllers decide: the same everywhere, and by the rules on which nothing is lost.

A decision is a command of their log, known as soon as one of them applies it. It is judged by what
was decided before it, and by the logs of the brokers. Source: docs/adr/0020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from namesrv.controller.commands import AlterInSync, Code, Elect, Register, encode_command
from namesrv.controller.state import encode_state
from sim.oracles.base import Violation
from sim.switch.rules import follows

if TYPE_CHECKING:
    from collections.abc import Callable

    from namesrv.controller.commands import Command, Outcome
    from namesrv.controller.machine import Machine
    from namesrv.controller.state import Group


class Decision(NamedTuple):
    """One command, and all groups as it left them."""

    command: bytes
    state: bytes
    first: str
    """Which controller applied it first."""


class Decisions:
    """The log of the controllers, as far as anybody has applied it.

    Args:
        name: of the brokers.
        on_change: hears of the group before and after each decision that changes it.
    """

    differ_name: Final = "A35 controllers differ"
    rules_name: Final = "A36 decided otherwise than the rules say"
    outside_name: Final = "A36 elected from outside the in-sync set"
    epoch_name: Final = "A32 epoch of a master"
    fewer_name: Final = "A36 elected though another one has more"
    unmoved_name: Final = "A36 loss that leaves the set as it was"
    granted_name: Final = "A36 another in-sync set than was asked for"

    def __init__(self, name: str, on_change: Callable[[Group | None, Group], None]) -> None:
        self._name = name
        self._on_change = on_change
        self._made: dict[int, Decision] = {}
        self.last = 0
        """Index of the last one."""
        self.group: Group | None = None
        """The brokers, as was decided last."""
        self.masters: dict[int, int] = {}
        """Id of the master of each epoch."""

    def on_applied(
        self, host: str, index: int, machine: Machine, command: Command, outcome: Outcome
    ) -> None:
        """A controller has applied a command. Errors: `Violation`."""
        found = Decision(encode_command(command), encode_state(machine.groups), host)
        known = self._made.setdefault(index, found)
        if known is not found:
            if known[:2] != found[:2]:
                raise Violation(
                    self.differ_name,
                    f"{host} applies {found.command.decode()} as number {index}, and "
                    f"{known.first} applied {known.command.decode()}; they have "
                    f"{found.state.decode()} and {known.state.decode()}",
                )
            return
        if index <= self.last:
            raise Violation(
                self.differ_name,
                f"{host} applies a command as number {index}; {self.last} had been applied without",
            )
        self.last = index
        before, after = self.group, machine.groups.get(self._name)
        if after is not None and outcome.code is Code.SUCCESS:
            self._check_granted(after, command)
            self._check_moved(before, after, command)
        if outcome.changed and after is not None:
            self.group = after
            self._judge(before, after, command)
            self._on_change(before, after)
        if command.group == self._name:  # last: who sees the harm says more
            self._check_rules(before, after, command, outcome)

    def _check_rules(
        self, before: Group | None, after: Group | None, command: Command, outcome: Outcome
    ) -> None:
        """A command is granted or refused, and changes the group, as the rules say."""
        wanted = follows(before, command)
        is_granted = outcome.code is Code.SUCCESS
        if is_granted != (wanted is not None) or after != (wanted or before):
            raise Violation(
                self.rules_name,
                f"{command} ends with {outcome.code} {outcome.remark!r}: {before} becomes "
                f"{after}, and by the rules {wanted or 'it is refused'}",
            )

    def _check_granted(self, after: Group, command: Command) -> None:
        """A set is granted as it was asked for, or refused: who asks goes by what it has asked."""
        if not isinstance(command, AlterInSync) or command.group != self._name:
            return
        if set(after.in_sync) != set(command.in_sync):
            raise Violation(
                self.granted_name,
                f"{command.master} asks for {command.in_sync} in epoch {command.master_epoch}, and "
                f"is granted {after.in_sync}",
            )

    def _check_moved(self, before: Group | None, after: Group, command: Command) -> None:
        """Whoever may have lost the end of its log is let in by no request from before that.

        Such a request names the epoch of the set that its master knows, which has to be over.
        """
        if not isinstance(command, Register) or command.group != self._name or before is None:
            return
        is_loss = command.may_lack_end and bool(before.master_epoch)
        if is_loss and after.in_sync_epoch <= before.in_sync_epoch:
            raise Violation(
                self.unmoved_name,
                f"{command.id} may lack the end of its log, and the set of {after.in_sync} is of "
                f"epoch {after.in_sync_epoch} as before",
            )

    def _check_most(self, before: Group, after: Group, command: Elect) -> None:
        """Where all that were in sync may lack something, who has most of all is elected."""
        if not before.in_doubt or command.designated or command.unclean:
            return
        alive = [one for one in command.alive if one in before.replicas]
        first = next((one for one in alive if before.replicas[one].address), after.master)
        if after.master != first:
            raise Violation(
                self.fewer_name,
                f"{after.master} is elected, and of those that live, by what they have, "
                f"{command.alive}, {first} is the first; {before.in_sync} are in doubt",
            )

    def _judge(self, before: Group | None, after: Group, command: Command) -> None:
        """Judge a change by the rules."""
        known = self.masters.setdefault(after.master_epoch, after.master) if after.master else 0
        if after.master and known != after.master:
            raise Violation(
                "A30 two masters of one epoch",
                f"{known} was the master of epoch {after.master_epoch}, now {after.master} is",
            )
        if before is None:
            return
        if after.master_epoch < before.master_epoch or after.in_sync_epoch < before.in_sync_epoch:
            raise Violation(self.epoch_name, f"{before} is followed by {after}")
        if after.master_epoch == before.master_epoch:
            return
        # Where all that were in sync lost their power it is who has most: `Replicas` looks at that.
        if before.master_epoch and after.master not in before.in_sync and not before.in_doubt:
            raise Violation(
                self.outside_name,
                f"{after.master} is elected, and {before.in_sync} were in sync",
            )
        if not isinstance(command, Elect) or after.master_epoch != before.master_epoch + 1:
            raise Violation(self.epoch_name, f"{command} begins epoch {after.master_epoch}")
        self._check_most(before, after, command)
