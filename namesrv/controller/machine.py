"""The rules by which a command changes a group. Pure: the same on every controller.

What they keep, and ADR 20 rests on:

- an epoch has one master at most, and epochs only rise, also those of in-sync sets;
- a master is elected from the in-sync set, unless an administrator or a setting asks for more;
- nobody but the master of the last epoch changes the in-sync set, and only the set that it knows;
- a broker that starts is no master, whatever it was before: it may have lost the end of its log;
- one that may have lost it leaves the in-sync set, unless nobody else is in it; then who has most
  of all that live is elected, since of two logs the one that goes farther in a later epoch has all
  that the other has of what was acknowledged;
- an id is given once, and belongs to one directory.

Source: ReplicasInfoManager of RocketMQ 5; SPEC of elections in its design of the controller mode.
"""

from typing import assert_never

from msgspec.structs import replace

from namesrv.controller.commands import (
    AlterInSync,
    ApplyId,
    Code,
    Command,
    Elect,
    Outcome,
    Register,
    Remove,
)
from namesrv.controller.limits import EPOCH_MAX, GROUPS_MAX, REPLICA_ID_MAX, REPLICAS_MAX
from namesrv.controller.state import NO_MASTER, Group, Groups, Replica


class Machine:
    """All groups, and what commands make of them."""

    def __init__(self, groups: Groups | None = None) -> None:
        self.groups: Groups = {} if groups is None else dict(groups)

    def apply(self, command: Command) -> Outcome:
        """Change the group as far as the rules let it; return how that ended."""
        before = self.groups.get(command.group)
        outcome = self._decide(before, command)
        after = outcome.group
        if outcome.changed:
            assert after is not None, command
            assert not after.problem(), (after.problem(), command)
            _check_step(before, after)
            self.groups[command.group] = after
        return outcome

    def _decide(self, group: Group | None, command: Command) -> Outcome:
        match command:
            case ApplyId():
                if group is None and len(self.groups) >= GROUPS_MAX:
                    return Outcome(Code.INVALID_REQUEST, f"there are {GROUPS_MAX} groups already")
                return _apply_id(group or Group(cluster=command.cluster), command)
            case _ if group is None:
                return Outcome(Code.GROUP_UNKNOWN, f"no broker of {command.group!r} has an id yet")
            case Register():
                return _register(group, command)
            case AlterInSync():
                return _alter(group, command)
            case Elect():
                return _elect(group, command)
            case Remove():
                return _remove(group, command)
            case _:
                assert_never(command)


def _check_step(before: Group | None, after: Group) -> None:
    """Check what two states in a row have to each other."""
    if before is None:
        return
    assert after.master_epoch >= before.master_epoch, (before, after)
    assert after.in_sync_epoch >= before.in_sync_epoch, (before, after)
    assert after.next_id >= before.next_id, (before, after)
    same_epoch = after.master_epoch == before.master_epoch
    assert not same_epoch or after.master in (before.master, NO_MASTER), (before, after)
    same_set = after.in_sync == before.in_sync
    assert same_set or after.in_sync_epoch > before.in_sync_epoch, (before, after)


def _refused(code: Code, remark: str, group: Group) -> Outcome:
    return Outcome(code, remark, group)


def _changed(group: Group) -> Outcome:
    return Outcome(Code.SUCCESS, "", group, changed=True)


def _apply_id(group: Group, command: ApplyId) -> Outcome:
    if command.cluster != group.cluster:
        return _refused(Code.INVALID_REQUEST, f"this group belongs to {group.cluster}", group)
    known = group.replicas.get(command.id)
    if known is not None and known.check_code == command.check_code:
        return Outcome(Code.SUCCESS, "", group)
    if command.id != group.next_id:
        return _refused(Code.ID_INVALID, f"the next id is {group.next_id}", group)
    if any(one.check_code == command.check_code for one in group.replicas.values()):
        return _refused(Code.ID_INVALID, "a replica with this check code has an id", group)
    if len(group.replicas) >= REPLICAS_MAX or group.next_id > REPLICA_ID_MAX:
        return _refused(
            Code.INVALID_REQUEST,
            f"the group has {len(group.replicas)} replicas; remove one that does not come back",
            group,
        )
    replicas = {**group.replicas, command.id: Replica(check_code=command.check_code)}
    return _changed(replace(group, replicas=replicas, next_id=command.id + 1))


def _register(group: Group, command: Register) -> Outcome:
    known = group.replicas.get(command.id)
    if command.cluster != group.cluster:
        return _refused(Code.INVALID_REQUEST, f"this group belongs to {group.cluster}", group)
    if known is None:
        return _refused(Code.NOT_REGISTERED, f"id {command.id} was not given to anybody", group)
    if command.check_code and command.check_code != known.check_code:
        return _refused(Code.ID_INVALID, f"id {command.id} belongs to another directory", group)
    if command.other_alive and known.address not in ("", command.address):
        return _refused(
            Code.ID_INVALID,
            f"id {command.id} is in use at {known.address}; is this a copy of its directory?",
            group,
        )
    if command.other_alive and not command.check_code:
        # RocketMQ's brokers say none: theirs is believed once the one before has hung up.
        remark = f"id {command.id} is in use; wait until it is gone, or say its check code"
        return _refused(Code.ID_INVALID, remark, group)
    new = replace(known, address=command.address, ha_address=command.ha_address)
    master = NO_MASTER if command.id == group.master else group.master
    changed = replace(group, replicas={**group.replicas, command.id: new}, master=master)
    if command.may_lack_end and group.master_epoch:
        if group.in_sync_epoch >= EPOCH_MAX:
            return _refused(Code.INVALID_REQUEST, "there is no epoch after this one", group)
        changed = _without_end_of(command, changed)
    return Outcome(Code.SUCCESS, "", changed, changed=changed != group)


def _without_end_of(command: Register, group: Group) -> Group:
    """Return the group once one of it may lack what was acknowledged, as far as others have that.

    The set gets another epoch in any case: a master may have asked to let it in before. Whoever was
    elected without taking office has acknowledged nothing: those count again who were in sync then.
    """
    left = tuple(one for one in group.in_sync if one != command.id)
    reserve = tuple(one for one in group.reserve if one != command.id)
    if not left and command.last_epoch < group.reserve_epoch:
        left, reserve = reserve, ()
    return replace(
        group,
        in_sync=left or group.in_sync,
        in_sync_epoch=group.in_sync_epoch + 1,
        reserve=reserve if left else (),
        in_doubt=group.in_doubt if left == group.in_sync else not left,
    )


def _alter(group: Group, command: AlterInSync) -> Outcome:
    if command.master != group.master:
        return _refused(Code.INVALID_MASTER, f"the master is {group.master or 'nobody'}", group)
    if command.master_epoch != group.master_epoch:
        return _refused(Code.FENCED_MASTER_EPOCH, f"the epoch is {group.master_epoch}", group)
    if command.in_sync_epoch != group.in_sync_epoch:
        return _refused(
            Code.FENCED_IN_SYNC_EPOCH, f"the epoch of the set is {group.in_sync_epoch}", group
        )
    members = tuple(sorted(set(command.in_sync)))
    unknown = [one for one in members if not _is_registered(group, one)]
    if unknown or group.master not in members:
        why = f"{unknown[0]} is not registered" if unknown else "the master is not among them"
        return _refused(Code.INVALID_REPLICAS, why, group)
    silent = [one for one in members if one not in (*group.in_sync, *command.alive)]
    if silent:
        return _refused(Code.BROKER_NOT_ALIVE, f"{silent[0]} was not heard of", group)
    if members == group.in_sync:
        return Outcome(Code.SUCCESS, "", group)
    return _with_in_sync(group, members)


def _elect(group: Group, command: Elect) -> Outcome:
    if command.master_epoch != group.master_epoch:
        return _refused(Code.FENCED_MASTER_EPOCH, f"the epoch is {group.master_epoch}", group)
    is_alive = group.master in command.alive
    if is_alive and (not command.designated or command.wanted == group.master):
        return _refused(Code.MASTER_STILL_EXISTS, f"the master is {group.master}", group)
    alive = [one for one in command.alive if _is_registered(group, one)]
    if command.designated:
        alive = [one for one in alive if one == command.wanted]
    whole = [one for one in alive if one in group.in_sync or not group.master_epoch]
    if group.in_doubt and not command.designated:
        whole = alive[:1] if whole else []
    candidates = whole or (alive if command.unclean else [])
    if not candidates:
        return _nobody(group, command)
    if EPOCH_MAX in (group.master_epoch, group.in_sync_epoch):
        return _refused(Code.INVALID_REQUEST, "there is no epoch after this one", group)
    chosen = command.wanted if command.wanted in candidates else candidates[0]
    epoch = group.master_epoch + 1
    reserve, reserve_epoch = tuple(one for one in group.in_sync if one != chosen), epoch
    if chosen not in group.in_sync:
        reserve = ()
    elif not reserve:  # elected again: it may not have taken office before, either
        reserve, reserve_epoch = group.reserve, group.reserve_epoch
    return _changed(
        replace(
            group,
            master=chosen,
            master_epoch=epoch,
            in_sync=(chosen,),
            in_sync_epoch=group.in_sync_epoch + 1,
            reserve=reserve,
            reserve_epoch=reserve_epoch,
            in_doubt=False,
        )
    )


def _nobody(group: Group, command: Elect) -> Outcome:
    """Return that nobody can be elected, and who could."""
    if command.designated and command.wanted not in command.alive:
        return _refused(Code.BROKER_NOT_ALIVE, f"{command.wanted} was not heard of", group)
    who = ", ".join(map(str, group.in_sync)) or "none"
    return _refused(
        Code.ELECTION_FAILED if command.designated else Code.MASTER_NOT_AVAILABLE,
        f"only a replica that was in sync ({who}) can be the master without a loss",
        group,
    )


def _remove(group: Group, command: Remove) -> Outcome:
    going = set(command.ids)
    unknown = sorted(going - set(group.replicas))
    if unknown:
        return _refused(Code.INVALID_REMOVAL, f"there is no replica {unknown[0]}", group)
    if group.master in going:
        return _refused(Code.INVALID_REMOVAL, f"{group.master} is the master", group)
    living = sorted(going.intersection(command.alive))
    if living and not command.also_living:
        return _refused(Code.INVALID_REMOVAL, f"{living[0]} is alive", group)
    members = tuple(one for one in group.in_sync if one not in going)
    if group.in_sync and not members:
        remark = "nobody would be left who has all that was acknowledged"
        return _refused(Code.INVALID_REMOVAL, remark, group)
    if not going:
        return Outcome(Code.SUCCESS, "", group)
    replicas = {one: replica for one, replica in group.replicas.items() if one not in going}
    reserve = tuple(one for one in group.reserve if one not in going)
    left = _with_in_sync(group, members) if members != group.in_sync else _changed(group)
    if left.group is None or not left.changed:
        return left
    return _changed(replace(left.group, replicas=replicas, reserve=reserve))


def _with_in_sync(group: Group, members: tuple[int, ...]) -> Outcome:
    if group.in_sync_epoch >= EPOCH_MAX:
        return _refused(Code.INVALID_REQUEST, "there is no epoch after this one", group)
    return _changed(
        replace(group, in_sync=members, in_sync_epoch=group.in_sync_epoch + 1, reserve=())
    )


def _is_registered(group: Group, one: int) -> bool:
    replica = group.replicas.get(one)
    return replica is not None and bool(replica.address)
