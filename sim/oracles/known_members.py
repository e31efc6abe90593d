"""Who asks for the members of a group is told those who have come and have not left.

Consumers share the queues of a topic by that list: whoever is missing gets none, and whoever is in
it and gone holds queues that nobody reads. Likewise of producers, whom brokers ask about
transactions and send replies to. Known from the wire alone, at each broker: heartbeats
that it has taken, members that took their leave, and connections that are closed. What is under way
while somebody asks may be in the answer or not. Source: spec/wire.md 3.6 (34, 35, 38, 204);
RocketMQ ConsumerManageProcessor.getConsumerListByGroup, ConsumerManager.doChannelCloseEvent.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from sim.oracles.failing import BY_CHANCE
from sim.oracles.replying import Replying

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said, Tap

HEARTBEAT, LEAVE, LIST, PRODUCERS = 34, 35, 38, 204
SUCCESS: Final = 0
GONE_NS: Final = 1_000_000_000
"""So long after a member has gone, as far as its broker can know, nobody is told of it."""
SILENT_NS: Final = 45_000_000_000
"""Members that have said nothing for so long may be forgotten: clocks may run at double speed."""
PRODUCING: Final = "producers of "
"""Before the name of a group, where producers are meant."""
NAME: Final = "A41 members told otherwise than they came"


class Member:
    """What a connection has said of one group."""

    __slots__ = ("client", "gone_ns", "heard_ns", "is_taken", "tap")

    def __init__(self, tap: Tap, client: str, heard_ns: int) -> None:
        self.tap = tap
        self.client = client
        self.heard_ns = heard_ns
        self.is_taken = False
        """Whether a heartbeat of it was answered with success."""
        self.gone_ns: int | None = None
        """When it was first seen to be gone."""


class KnownMembers:
    """Judges what one life of a broker says of the members of groups."""

    def __init__(
        self, replica: Replica, polite: frozenset[str], silent_ns: int = SILENT_NS
    ) -> None:
        self._silent_ns = silent_ns
        self._replica = replica
        self._polite = polite
        self.replying = Replying(replica, silent_ns)
        """Judges over which connections it sends replies."""
        self._groups: dict[str, dict[Tap, Member]] = defaultdict(dict)
        self._rude: set[str] = set()
        """Groups and client ids that somebody has named who may mean anything."""

    def on_request(self, tap: Tap, request: Said) -> None:
        """A broker hears a request."""
        if request.code == HEARTBEAT:
            self._on_heartbeat(tap, request)
        elif request.code == LEAVE:
            for group in (
                request.text("consumerGroup"), f"{PRODUCING}{request.text('producerGroup')}"
            ):  # fmt: skip
                self.replying.on_left(tap, group)
                member = self._groups[group].get(tap)
                if member is not None and member.gone_ns is None:
                    member.gone_ns = request.at_ns

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A broker has answered. Errors: `Violation`."""
        if request.code == HEARTBEAT and answer.code == SUCCESS:
            client, groups = self._groups_of(request)
            self.replying.on_taken(tap, client, groups, request, answer.at_ns)
            for group in groups:
                member = self._groups[group].get(tap)
                if member is not None and member.heard_ns <= request.at_ns:
                    member.is_taken = True
        elif request.code == LIST and answer.remark != BY_CHANCE:
            found = json.loads(answer.body)["consumerIdList"] if answer.code == SUCCESS else ()
            self._check(request.text("consumerGroup"), set(found), request, answer)
        elif request.code == PRODUCERS:
            rows = json.loads(answer.body)["connectionSet"] if answer.code == SUCCESS else ()
            group = f"{PRODUCING}{request.text('producerGroup')}"
            self._check(group, {one["clientId"] for one in rows}, request, answer)

    def _on_heartbeat(self, tap: Tap, request: Said) -> None:
        client, groups = self._groups_of(request)
        if tap.other not in self._polite:
            self._rude |= {client, *groups}
            return
        sends = [group for group in groups if group.startswith(PRODUCING)]
        self.replying.on_heartbeat(tap, client, sends, request.at_ns)
        for group in groups:
            known = self._groups[group].get(tap)
            if known is None or known.gone_ns is not None or known.client != client:
                self._groups[group][tap] = Member(tap, client, request.at_ns)
            else:
                known.heard_ns = request.at_ns

    @staticmethod
    def _groups_of(request: Said) -> tuple[str, list[str]]:
        """Return the client id of a heartbeat, and the groups in which it consumes or produces."""
        try:
            said = json.loads(request.body)
            groups = [one["groupName"] for one in said.get("consumerDataSet") or ()]
            sends = said.get("producerDataSet") or ()
            groups += [f"{PRODUCING}{one['groupName']}" for one in sends]
            return str(said["clientID"]), groups
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return "", []  # what is no JSON for everybody says nothing here

    def _check(self, group: str, told: set[str], request: Said, answer: Said) -> None:
        members, now_ns = self._groups[group], answer.at_ns
        surely: set[str] = set()
        maybe: set[str] = set(self._rude)
        for tap, member in list(members.items()):
            if tap.is_closed and member.gone_ns is None:
                member.gone_ns = now_ns
            if member.gone_ns is None:
                is_heard = now_ns - member.heard_ns < self._silent_ns
                if member.is_taken and is_heard and member.heard_ns < request.at_ns:
                    surely.add(member.client)
                maybe.add(member.client)
            elif now_ns - member.gone_ns < GONE_NS or self._replica.hangs():
                maybe.add(member.client)
            else:
                del members[tap]
        if group not in self._rude and (surely - told or told - maybe):
            text = f"{self._replica.name} says that {sorted(told)} are in {group}: "
            text += f"{sorted(surely - told)} are, too, {sorted(told - maybe)} are not"
            raise Violation(NAME, text, node=self._replica.name)
