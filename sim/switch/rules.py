"""What a command makes of a group of brokers, by the rules of the controllers, written here anew.

All controllers apply alike, a mistake too: that they agree says nothing of the rules. So each
command is judged by what it is to come to: granted or refused, and with which group behind it.
Source: docs/adr/0020; docs/replication.md, automatic switch; RocketMQ 5 ReplicasInfoManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from namesrv.controller.commands import AlterInSync, ApplyId, Elect, Register, Remove
from namesrv.controller.state import Group, Replica

if TYPE_CHECKING:
    from namesrv.controller.commands import Command


def follows(before: Group | None, command: Command) -> Group | None:
    """Return the group behind a command, as before where it changes nothing; None: refused.

    How many groups and replicas there may be, and the last epoch, no run comes near.
    """
    if isinstance(command, ApplyId):
        return _with_id(before or Group(cluster=command.cluster), command)
    if before is None:
        return None
    if isinstance(command, Register):
        return _registered(before, command)
    if isinstance(command, AlterInSync):
        return _altered(before, command)
    if isinstance(command, Elect):
        return _elected(before, command)
    return _removed(before, command)


def _with_id(group: Group, command: ApplyId) -> Group | None:
    codes = {one: replica.check_code for one, replica in group.replicas.items()}
    if command.cluster != group.cluster:
        return None
    if codes.get(command.id) == command.check_code:
        return group  # it asks again
    if command.id != group.next_id or command.check_code in codes.values():
        return None
    made = {**group.replicas, command.id: Replica(check_code=command.check_code)}
    return replace(group, replicas=made, next_id=group.next_id + 1)


def _registered(group: Group, command: Register) -> Group | None:
    one = group.replicas.get(command.id)
    if one is None or command.cluster != group.cluster:
        return None
    is_proven = command.check_code == one.check_code
    if command.check_code and not is_proven:
        return None
    if command.other_alive and (not is_proven or one.address not in {"", command.address}):
        return None
    told = replace(one, address=command.address, ha_address=command.ha_address)
    master = 0 if group.master == command.id else group.master
    after = replace(group, replicas={**group.replicas, command.id: told}, master=master)
    if not command.may_lack_end or not group.master_epoch:
        return after
    return _without(after, command.id, command.last_epoch)


def _without(group: Group, one: int, last_epoch: int) -> Group:
    """Return a group of which one may lack the end of its log: the set has another epoch."""
    epoch = group.in_sync_epoch + 1
    rest = tuple(member for member in group.in_sync if member != one)
    others = tuple(member for member in group.reserve if member != one)
    if rest == group.in_sync:
        return replace(group, in_sync_epoch=epoch, reserve=others)
    if rest:
        return replace(group, in_sync=rest, in_sync_epoch=epoch, reserve=others, in_doubt=False)
    if others and last_epoch < group.reserve_epoch:  # it was elected, and did not take office
        return replace(group, in_sync=others, in_sync_epoch=epoch, reserve=(), in_doubt=False)
    return replace(group, in_sync_epoch=epoch, reserve=(), in_doubt=True)


def _altered(group: Group, command: AlterInSync) -> Group | None:
    asked = (command.master, command.master_epoch, command.in_sync_epoch)
    if asked != (group.master, group.master_epoch, group.in_sync_epoch):
        return None  # from who is no master, or did not know the last set
    members = tuple(sorted(set(command.in_sync)))
    if command.master not in members:
        return None
    for one in members:
        is_alive = one in group.in_sync or one in command.alive
        if not _is_registered(group, one) or not is_alive:
            return None
    return group if members == group.in_sync else _with_set(group, members)


def _elected(group: Group, command: Elect) -> Group | None:
    if command.master_epoch != group.master_epoch:
        return None  # somebody was elected since
    is_moved = command.designated and command.wanted != group.master
    if group.master in command.alive and not is_moved:
        return None
    alive = [one for one in command.alive if _is_registered(group, one)]
    if command.designated:
        alive = [one for one in alive if one == command.wanted]
    fit = [one for one in alive if not group.master_epoch or one in group.in_sync]
    if fit and group.in_doubt and not command.designated:
        fit = alive[:1]  # who has most has all that anybody has
    if not fit and command.unclean:
        fit = alive
    if not fit:
        return None
    chosen = command.wanted if command.wanted in fit else fit[0]
    epoch = group.master_epoch + 1
    others = tuple(one for one in group.in_sync if one != chosen)
    reserve: tuple[int, ...] = ()
    reserve_epoch = epoch
    if others and chosen in group.in_sync:
        reserve = others
    elif chosen in group.in_sync:
        reserve, reserve_epoch = group.reserve, group.reserve_epoch
    return replace(
        group, master=chosen, master_epoch=epoch, in_sync=(chosen,),
        in_sync_epoch=group.in_sync_epoch + 1, reserve=reserve, reserve_epoch=reserve_epoch,
        in_doubt=False,
    )  # fmt: skip


def _removed(group: Group, command: Remove) -> Group | None:
    going = set(command.ids)
    if not going <= set(group.replicas) or group.master in going:
        return None
    if going & set(command.alive) and not command.also_living:
        return None
    left = tuple(one for one in group.in_sync if one not in going)
    if group.in_sync and not left:
        return None
    if not going:
        return group
    kept = {one: replica for one, replica in group.replicas.items() if one not in going}
    reserve = tuple(one for one in group.reserve if one not in going)
    after = group if left == group.in_sync else _with_set(group, left)
    return replace(after, replicas=kept, reserve=reserve)


def _with_set(group: Group, members: tuple[int, ...]) -> Group:
    epoch = group.in_sync_epoch + 1
    return replace(group, in_sync=members, in_sync_epoch=epoch, reserve=())


def _is_registered(group: Group, one: int) -> bool:
    return one in group.replicas and bool(group.replicas[one].address)
