"""Who belongs to the group: configurations, how one may follow another, and which one is in force.

A configuration is an entry of the log. It takes effect when it is *appended*, not when it is
committed, and ends to have effect when it is truncated; so the latest one in the log is in force.
Two configurations that follow each other differ by one server. Then every majority of the one
shares a voter with every majority of the other, and no two leaders of one term can be elected
while some servers know the one and some the other.

A *learner* gets the log like a voter, but is counted nowhere: not for a commit, not in an election.

A configuration also says who was a *former* member: whoever was removed has still its key or its
certificate, and may speak no more (`Membership.is_shut_out`). Who was never a member may be one by
now, as far as a server knows whose log is short.

Source: Ongaro's dissertation 4.1, 4.2.1 (learners); the raft-dev erratum of July 2015 (a leader
must first have committed an entry of its own term).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from dledger.errors import MembershipRefused

NodeId = str
LogIndex = int  # as in `model`, which builds on this module
FORMER_MAX: Final = 64
"""Most former members remembered, the last to be removed."""
KEPT_MAX: Final = 256
"""Most configurations remembered: what a log may lose at its end reaches never so far back."""


class Configuration(msgspec.Struct, frozen=True):
    """The members of the group, each with the address (``host:port``) at which others find it."""

    voters: dict[NodeId, str]
    learners: dict[NodeId, str] = {}
    version: int = 0
    """How many changes led to it."""
    removed: tuple[NodeId, ...] | msgspec.UnsetType = msgspec.UNSET
    """See `former`; left out of the bytes as long as there are none."""

    @property
    def former(self) -> tuple[NodeId, ...]:
        """Members that were removed and not added again, the latest last."""
        return () if isinstance(self.removed, msgspec.UnsetType) else self.removed

    @property
    def members(self) -> dict[NodeId, str]:
        """Voters and learners."""
        return {**self.voters, **self.learners}

    def describe(self) -> str:
        """Render as words, for logs and golden files."""
        words = f"version={self.version} voters={','.join(self.voters)}"
        return f"{words} learners={','.join(self.learners)}" if self.learners else words


class ConfigEntry(msgspec.Struct, frozen=True):
    """A configuration at its place in the log."""

    index: LogIndex
    term: int
    configuration: Configuration


class ChangeKind(Enum):
    """What may be done to a configuration in one step."""

    ADD_LEARNER = "add_learner"
    PROMOTE = "promote"
    REMOVE = "remove"


class Change(msgspec.Struct, frozen=True):
    """One step; ``address`` is needed to add."""

    kind: ChangeKind
    node_id: NodeId
    address: str = ""


def changed(configuration: Configuration, change: Change) -> Configuration:
    """Return the configuration after ``change``, a new server last.

    Errors: `MembershipRefused` for what makes no sense; it never will.
    """
    node_id, kind = change.node_id, change.kind
    voters, learners = dict(configuration.voters), dict(configuration.learners)
    former = [one for one in configuration.former if one != node_id]
    if kind is ChangeKind.ADD_LEARNER:
        if node_id in configuration.members:
            word = "voter" if node_id in voters else "learner"
            raise MembershipRefused(f"{node_id} is a {word} already")
        learners[node_id] = change.address
    elif kind is ChangeKind.PROMOTE:
        if node_id not in learners:
            raise MembershipRefused(f"{node_id} is not a learner")
        voters[node_id] = learners.pop(node_id)
    else:
        if node_id not in configuration.members:
            raise MembershipRefused(f"{node_id} is not a member")
        if list(voters) == [node_id]:
            raise MembershipRefused(f"{node_id} is the last voter")
        voters.pop(node_id, None)
        learners.pop(node_id, None)
        former.append(node_id)
    removed = tuple(former[-FORMER_MAX:]) or msgspec.UNSET
    return Configuration(voters, learners, configuration.version + 1, removed)


class Membership:
    """The configurations of one log, in its order.

    Invariant: the indexes rise strictly; the first one, at -1, is what a new group begins with.
    """

    __slots__ = ("_entries", "_vouched", "unsaved")

    def __init__(self, first: Mapping[NodeId, str], entries: Sequence[ConfigEntry] = ()) -> None:
        beginning = ConfigEntry(-1, 0, Configuration(dict(first)))
        self._entries = [beginning, *entries]
        self._vouched: Configuration | None = None
        self.unsaved = False
        """Whether `entries` has changed and is not on its way to the disk."""

    @property
    def latest(self) -> ConfigEntry:
        """The one in force, committed or not."""
        return self._entries[-1]

    @property
    def entries(self) -> tuple[ConfigEntry, ...]:
        """What has to be durable: all that are entries of the log."""
        return tuple(entry for entry in self._entries if entry.index >= 0)

    def at(self, index: LogIndex) -> ConfigEntry:
        """Return the one in force when the log ended at ``index``; see `knows`."""
        return next(entry for entry in reversed(self._entries) if entry.index <= max(index, -1))

    def knows(self, index: LogIndex) -> bool:
        """Tell whether `at` says it; not where it was one of those that are remembered no more."""
        oldest = self._entries[1] if len(self._entries) > 1 else self._entries[0]
        return oldest.index <= index or oldest.configuration.version <= 1

    def is_shut_out(self, node_id: NodeId, commit_index: LogIndex) -> bool:
        """Tell whether a server was removed, and not added again as far as is known here.

        As long as its removal is not known to be committed it is a member: it may be the only one
        that can commit it. Others may know that it was added again, see `vouch`.
        """
        committed = self.at(commit_index)
        if node_id not in committed.configuration.former:
            return False
        later = [entry.configuration for entry in self._entries if entry.index > committed.index]
        if self._vouched is not None:
            later.append(self._vouched)
        return not any(node_id in found.members for found in later)

    def vouch(self, configuration: Configuration) -> bool:
        """Take a committed configuration that another member knows; return whether it is news.

        It shuts nobody out and counts no votes: the log alone does that. It ends to count once the
        log has got as far.
        """
        known = self.latest.configuration.version
        if self._vouched is not None:
            known = max(known, self._vouched.version)
        if configuration.version <= known:
            return False
        self._vouched = configuration
        return True

    def add(self, entry: ConfigEntry) -> None:
        """Take one that was appended."""
        assert entry.index > self.latest.index, (entry.index, self.latest.index)
        self._entries.append(entry)
        if len(self._entries) > KEPT_MAX:
            del self._entries[1]
        self._forget_vouched()
        self.unsaved = True

    def cut(self, index: LogIndex) -> None:
        """Forget those from ``index`` on: they were truncated.

        Nothing has to be written for that: at a start, one whose entry is not in the log is none.
        """
        while self._entries[-1].index >= max(index, 0):
            self._entries.pop()

    def reset(self, entry: ConfigEntry) -> None:
        """Begin with the configuration of a snapshot that took the log's place."""
        del self._entries[1:]
        if entry.index >= 0:
            self._entries.append(entry)
        self._forget_vouched()
        self.unsaved = True

    def _forget_vouched(self) -> None:
        vouched = self._vouched
        if vouched is not None and vouched.version <= self.latest.configuration.version:
            self._vouched = None
