"""What brokers answer: each answer, at the broker, against the log and against the request.

Reads and offsets are the leader's; what is read is the record in the log, byte for byte; where a
queue begins and ends is what the log of the one who says so makes it; an acknowledgement tells the
place and the id under which the message lies; a lock that is given has its record of state; and an
answer comes in time. Source: docs/adr/0007; spec/wire.md 3.3-3.8.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from dledger.core.model import LEADER
from sim.oracles.base import Violation
from sim.oracles.by_key import ByKey
from sim.oracles.delays import SCHEDULE_TOPIC
from sim.oracles.early import Early
from sim.oracles.failing import check_failure
from sim.oracles.fidelity import check_stored
from sim.oracles.going_on import GoingOn
from sim.oracles.heard_ends import END_TRANSACTION
from sim.oracles.held_pulls import SUSPEND_MS_MAX, SUSPENDS, is_too_soon
from sim.oracles.known_members import SILENT_NS, KnownMembers
from sim.oracles.listening import Listening
from sim.oracles.order import changes_lock
from sim.oracles.prompt import Prompt
from sim.oracles.queue_answers import OF_QUEUES, RESET, QueueAnswers, records_in
from sim.oracles.records import ENTRY_HEADER_BYTES
from sim.oracles.stats_answers import StatsAnswers
from sim.oracles.taking import Taking
from sim.oracles.told_members import ToldMembers
from sim.oracles.told_topics import ToldTopics
from sim.oracles.topics import Topics
from sim.oracles.transactions import HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.history.segment import EntryRow
    from sim.oracles.heard_ends import HeardEnds
    from sim.oracles.model import Statement
    from sim.oracles.replica import Replica
    from sim.oracles.tables import Tables
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said, Tap

SEND, PULL, BY_KEY, QUERY_OFFSET, COMMIT_OFFSET = 10, 11, 12, 14, 15
MAX_OFFSET, MIN_OFFSET, BY_ID = 30, 31, 33
LOCK, SEND_V2, SEND_BATCH, MAKE_TOPIC = 41, 310, 320, 17
SENDS: Final = (SEND, SEND_V2, SEND_BATCH)
OF_LEADERS: Final = OF_QUEUES | {PULL, BY_KEY, MAX_OFFSET, MIN_OFFSET}
"""What a replica that does not lead never answers with success."""
SUCCESS, NOT_FOUND = 0, 19
ANSWER_MS: Final = 10_000
"""An answer that waits for a majority, or for a topic, has come by then."""
SLACK_MS: Final = 2_000
NS_PER_MS: Final = 1_000_000
LEASE_SLACK_NS: Final = 5_000_000_000
"""Of an answer, beside a lease by a clock at half speed."""
NO_TERM: Final = -1
NEVER_ANSWERED: Final = frozenset({QUERY_OFFSET})
"""A replica without authority leaves the question open, so that it is asked again."""
_place: Final = Struct(">i4xq").unpack_from
_entry_index: Final = attrgetter("entry_index")


class Asked(NamedTuple):
    """What was so when a broker heard a request; an answer is told later."""

    tick: int
    applied: int
    statements: int
    incarnation: int
    now_ms: int
    """By the clock of its machine."""
    first_index: int
    commit_index: int
    """What it knew in this life to be committed: who has just started has heard of nobody."""
    led: bool  # or had not told its broker yet that it does no more


class Brokers:
    """Judges what the brokers of a group say."""

    name = "A44 answer that is not what the log says"
    read_name = "A40 answer of a replica that does not lead"
    late_name = "A41 answer too late"
    soon_name = "A41 a pull is not held"
    lock_name = "A21 lock without reason"
    stray_name = "A44 answer that nobody waits for"
    unasked_name = "A24 offset in the log that nobody committed"

    def __init__(self, truth: Truth, tables: Tables, polite: frozenset[str]) -> None:
        self._truth = truth
        self._tables = tables
        self._polite = polite
        """Addresses of clients that say what they mean."""
        self.topics = Topics(truth)
        self._queues, self._by_key = QueueAnswers(truth), ByKey(truth)
        self.taking, self.early, self.prompt = Taking(), Early(), Prompt()
        self._listening, self._members = Listening(), ToldMembers()
        self._known: dict[str, tuple[int, KnownMembers]] = {}
        self.silent_ns = SILENT_NS
        """How long members may say nothing in this run before they may be forgotten."""
        self.on_made: Callable[[str, str], None] = lambda _broker, _topic: None
        """Hears which broker has told somebody that a topic is there."""
        self.ends: HeardEnds | None = None
        """Judges ends of transactions, if the run has any."""
        self.on_heard: Callable[[Said], None] = lambda _request: None
        self._taps: dict[str, list[Tap]] = defaultdict(list)
        self._offered: dict[tuple[str, str, int], dict[int, set[int]]] = defaultdict(dict)
        """By group and queue: offsets, and the terms in which some broker heard of them."""
        self._going_on = GoingOn(truth)
        self._reset: set[str] = set()
        """Groups that somebody has told to go on elsewhere."""
        truth.on_statement.append(self._check_kept)
        self._validators: dict[int, Callable[[Replica, Said, Said], None]] = {
            PULL: self._on_pull,
            BY_KEY: self._on_by_key,
            QUERY_OFFSET: self._on_offset,
            MAX_OFFSET: self._on_max,
            MIN_OFFSET: self._on_min,
            BY_ID: self._on_by_id,
            LOCK: self._on_lock,
            **dict.fromkeys(SENDS, self._on_send),
            **dict.fromkeys(self._queues.judges, self._on_queue),
            **StatsAnswers(truth, self._offered).judges,
            **ToldTopics(truth, tables).judges,
        }

    def add(self, replica: Replica, tap: Tap) -> None:
        """Listen to one more connection of a broker."""
        taps = [one for one in self._taps[replica.name] if not one.is_closed]
        self._taps[replica.name] = [*taps, tap]

    def members(self, replica: Replica) -> KnownMembers:
        """Return who judges what this life of a broker says of the members of groups."""
        incarnation, known = self._known.get(replica.name, (-1, None))
        if known is None or incarnation != replica.incarnation:
            known = KnownMembers(replica, self._polite, self.silent_ns)
            self._known[replica.name] = (replica.incarnation, known)
        return known

    def on_request(self, replica: Replica, request: Said) -> None:
        """A broker hears a request."""
        if request.code in SENDS:
            self.topics.on_send(_topic(request), request)
        elif request.code == MAKE_TOPIC:
            self.topics.on_change(request.text("topic"))
        elif request.code in {COMMIT_OFFSET, PULL}:
            place = _place_of(request)
            terms = self._offered[place].setdefault(request.number("commitOffset"), set())
            terms.add(replica.state.term if replica.is_up else NO_TERM)
        elif request.code == RESET:
            self._reset.add(request.text("group"))
        self.on_heard(request)
        if not replica.is_up:
            request.note = None
            return
        request.note = Asked(
            replica.state.tick,
            replica.applied_index,
            len(self._truth.statements),
            replica.incarnation,
            replica.now_ms(),
            replica.store.first_index,
            replica.state.log.commit_index,
            replica.state.role is LEADER or replica.controller.store.writer.writable,
        )
        if request.asker not in self._polite:
            return
        if request.code == COMMIT_OFFSET:
            self._check_offer(request)
        elif request.code == END_TRANSACTION and self.ends is not None:
            self.ends.on_request(replica, request)

    def on_answer(
        self, replica: Replica, request: Said, answer: Said, *, leads: bool
    ) -> None:  # fmt: skip
        """A broker has answered, as leader or not. Errors: `Violation`."""
        asked = request.note
        if not isinstance(asked, Asked) or not replica.is_up:
            return
        if asked.incarnation != replica.incarnation:
            return
        self._check_time(replica, request, answer)
        if answer.code == SUCCESS and request.code in OF_LEADERS:
            self._check_leads(replica, request, leads=leads)
        elif request.code in SENDS:
            self.taking.on_answer(replica, request, answer)
        elif answer.code == SUCCESS and request.code == MAKE_TOPIC:
            self.on_made(replica.name, request.text("topic"))
            self.early.on_topic(replica, request)
        elif leads and request.asker in self._polite:
            check_failure(replica, request, answer)
        validator = self._validators.get(request.code)
        if validator is not None and not replica.is_corrupt:
            validator(replica, request, answer)

    def on_tick(self, replica: Replica) -> None:
        """Look for requests that wait for too long, or come to nothing. Errors: `Violation`."""
        if self.ends is not None:
            self.ends.on_tick(replica)
        taps = self._taps[replica.name]
        self._listening.on_tick(replica, taps)
        self._members.on_tick(replica, taps, self._truth.now_ns())
        for tap in taps:
            if tap.open and not tap.is_closed:
                for request in tap.open.values():
                    if isinstance(request.note, Asked) and request.code not in NEVER_ANSWERED:
                        self._check_time(replica, request, None)

    def on_stray(self, replica: Replica, tap: Tap, answer: Said) -> None:
        """A broker answers what it was not asked, or once more."""
        if tap.other in self._polite:
            self._fail(self.stray_name, replica, f"answers {tap.other} {answer.code} once more")

    # Judges

    def _check_time(self, replica: Replica, request: Said, answer: Said | None) -> None:
        asked: Asked = request.note
        if asked.incarnation != replica.incarnation or replica.disk.is_watched or replica.hangs():
            return
        if replica.state.role is LEADER and request.asker in self._polite:
            self.prompt.check(replica, request, self._truth.now_ns())
        limit_ms = ANSWER_MS
        if request.code == PULL:
            held = request.number("suspendTimeoutMillis", 0)
            suspends = request.number("sysFlag", 0) & SUSPENDS
            limit_ms = SLACK_MS + (max(0, min(held, SUSPEND_MS_MAX)) if suspends else 0)
        waited_ms = (replica.state.tick - asked.tick) * replica.tick_ms
        if 0 < replica.rate_changed_ns() > request.at_ns - limit_ms * NS_PER_MS:
            return  # a timer that was set before goes off as if the clock ran as it did then
        if waited_ms > limit_ms:
            what = "does not answer" if answer is None else "answers"
            text = f"{what} {request.code} {dict(request.fields)} after {waited_ms} ms"
            self._fail(self.late_name, replica, text)

    def _check_leads(self, replica: Replica, request: Said, *, leads: bool) -> None:
        if not leads:
            text = f"answers {request.code} {dict(request.fields)} and does not lead"
            self._fail(self.read_name, replica, text)

    def _on_pull(self, replica: Replica, request: Said, answer: Said) -> None:
        topic, queue_id = request.text("topic"), request.number("queueId")
        asked: Asked = request.note
        offset = request.number("queueOffset")
        is_all = request.text("subscription") == "*"
        if answer.code == SUCCESS:
            self._check_found(replica, request, answer, is_all=is_all)
        elif answer.code == NOT_FOUND:
            self._check_held(replica, request, answer)
        if answer.code != SUCCESS:
            self._going_on.check(replica, request, answer)
        if answer.code == NOT_FOUND and is_all:
            end = self._truth.end_of(topic, queue_id, asked.applied)
            if self._begin(replica, topic, queue_id) <= offset < end:
                text = f"says that nothing is at {topic}/{queue_id}@{offset}, which ends at {end}"
                self._fail(self.name, replica, text)
        if "maxOffset" in answer.fields:
            self._check_max(replica, request, answer.number("maxOffset"))
            self._check_min(replica, request, answer.number("minOffset"))

    def _check_held(self, replica: Replica, request: Said, answer: Said) -> None:
        """Who may wait is told that there is nothing when the time is up that it gave, or later."""
        waited_ms = replica.now_ms() - request.note.now_ms
        if request.asker in self._polite and is_too_soon(request, answer, waited_ms):
            text = f"says that nothing has come after {waited_ms} ms: {dict(request.fields)}"
            self._fail(self.soon_name, replica, text)

    def _check_found(
        self, replica: Replica, request: Said, answer: Said, *, is_all: bool
    ) -> None:  # fmt: skip
        topic, queue_id = request.text("topic"), request.number("queueId")
        offset = request.number("queueOffset")
        records = list(records_in(answer.body))
        wanted = max(1, request.number("maxMsgNums", len(records)))
        if len(records) > wanted:
            text = f"reads {len(records)} messages of {topic}/{queue_id}, {wanted} were asked for"
            self._fail(self.name, replica, text)
        handed = set()
        for record in records:
            row = self._check_record(replica, record, f"reads {topic}/{queue_id}@{offset}")
            assert row.queue_offset is not None
            handed.add(row.queue_offset)
            is_next = row.queue_offset == offset if is_all else row.queue_offset >= offset
            if (row.topic, row.queue_id) != (topic, queue_id) or not is_next:
                text = f"reads {row.topic}/{row.queue_id}@{row.queue_offset} for {topic}/{queue_id}"
                self._fail(self.name, replica, f"{text}@{offset}")
            offset = row.queue_offset + 1
        told = answer.number("nextBeginOffset")
        if told != offset if is_all else told < offset:
            text = f"reads {topic}/{queue_id} up to {offset} and says that {told} is next"
            self._fail(self.name, replica, text)
        if not is_all:
            self._going_on.check(replica, request, answer, handed)

    def _on_by_key(self, replica: Replica, request: Said, answer: Said) -> None:
        rows = [
            self._check_record(replica, record, f"finds {request.text('key')}")
            for record in (records_in(answer.body) if answer.code == SUCCESS else ())
        ]
        for row in rows:
            if row.topic != request.text("topic"):
                self._fail(self.name, replica, f"finds a message of {row.topic}")
        if request.asker in self._polite:
            self._by_key.check(replica, request, rows)

    def _on_by_id(self, replica: Replica, request: Said, answer: Said) -> None:
        at = request.number("offset")
        row = self._truth.positions.get(at)
        asked: Asked = request.note
        if answer.code == SUCCESS:
            place = (row.entry_index, row.term) if row is not None else (-1, -1)
            if self._truth.crcs.get(place) != crc32(answer.body):
                self._fail(self.name, replica, f"shows another message than lies at {at}: {row}")
        elif row is not None and replica.store.first_index <= row.entry_index <= min(
            asked.applied, asked.commit_index
        ):
            self._fail(self.name, replica, f"finds no message at {at}, where {row} lies")

    def _on_max(self, replica: Replica, request: Said, answer: Said) -> None:
        if answer.code == SUCCESS:
            self._check_max(replica, request, answer.number("offset"))

    def _on_min(self, replica: Replica, request: Said, answer: Said) -> None:
        if answer.code == SUCCESS:
            self._check_min(replica, request, answer.number("offset"))

    def _on_queue(self, replica: Replica, request: Said, answer: Said) -> None:
        if answer.code != SUCCESS:
            return
        topic, queue_id = request.text("topic"), request.number("queueId")
        asked: Asked = request.note
        span = (
            self._begin(replica, topic, queue_id),
            self._truth.end_of(topic, queue_id, asked.applied),
        )
        self._queues.judges[request.code](replica, request, answer, span)

    def _check_max(self, replica: Replica, request: Said, told: int) -> None:
        topic, queue_id = request.text("topic"), request.number("queueId")
        asked: Asked = request.note
        low = self._truth.end_of(topic, queue_id, asked.applied)
        high = len(self._truth.queues.get((topic, queue_id), ()))
        if not low <= told <= high:
            text = f"says that {topic}/{queue_id} ends at {told}, it had {low} and has {high}"
            self._fail(self.name, replica, text)

    def _check_min(self, replica: Replica, request: Said, told: int) -> None:
        _, topic, queue_id = _place_of(request)
        begin = self._begin(replica, topic, queue_id)
        if told > begin:
            text = f"says that {topic}/{queue_id} begins at {told}, its log has it from {begin} on"
            self._fail(self.name, replica, text)

    def _on_offset(self, replica: Replica, request: Said, answer: Said) -> None:
        if answer.code != SUCCESS:
            return
        group, topic, queue_id = _place_of(request)
        told = answer.number("offset")
        if told and told not in self._offered[group, topic, queue_id]:
            text = f"tells {told} for {group} in {topic}/{queue_id}, which nobody committed"
            self._fail(self.name, replica, text)
        model = self._tables.model_of(replica)
        if request.note.led or replica.state.role is LEADER or model is None:
            return
        held = model.offsets.get(f"{topic}@{group}", {}).get(queue_id, told)
        if told != held:
            text = (
                f"follows, and tells {told} for {group} in {topic}/{queue_id}: the log has {held}"
            )
            self._fail(self.name, replica, text)

    def _check_kept(self, statement: Statement) -> None:
        """Judge offsets that are committed to the log: somebody has asked for each of them.

        He has asked the leader of that term: what a leader did not replicate is lost with it.
        """
        if statement.kind != "offset" or not isinstance(statement.content, dict):
            return
        term = self._truth.committed[statement.entry].term
        for key, queues in statement.content.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items() if group not in self._reset else ():
                if term not in self._offered[group, topic, int(queue_id)].get(offset, ()):
                    raise Violation(
                        self.unasked_name,
                        f"entry {statement.entry} of term {term} says {offset} for {group} in "
                        f"{topic}/{queue_id}",
                        index=statement.entry,
                    )

    def _check_offer(self, request: Said) -> None:
        topic, queue_id = request.text("topic"), request.number("queueId")
        offset, end = (
            request.number("commitOffset"),
            len(self._truth.queues.get((topic, queue_id), ())),
        )
        if not 0 <= offset <= end:
            raise Violation(
                "A24 offset that cannot be",
                f"{request.asker} commits {offset} in {topic}/{queue_id}, which ends at {end}",
            )

    def _on_send(self, replica: Replica, request: Said, answer: Said) -> None:
        if answer.code != SUCCESS:
            return
        topic = _topic(request)
        queue_id, offset = answer.number("queueId"), answer.number("queueOffset")
        ids = answer.text("msgId").split(",")
        dead_topic = f"%DLQ%{topic[7:]}" if topic.startswith("%RETRY%") else ""
        rows = []
        for number, one in enumerate(ids):
            row = self._truth.row(topic, queue_id, offset + number)
            at = int(one[-16:], 16)
            waiting = self._truth.positions.get(at)
            if waiting is not None and waiting.topic in {SCHEDULE_TOPIC, HALF_TOPIC}:
                # The answer has the queue that it was sent to, and the offset where it waits.
                row = waiting if waiting.queue_offset == offset + number else None
            elif waiting is not None and waiting.topic == dead_topic:
                row = waiting  # it was delivered too often
            if row is None or row.pos + ENTRY_HEADER_BYTES != at or one[:-16] != replica.id_head:
                text = f"says that {one} lies at {topic}/{queue_id}@{offset + number}: {row}"
                self._fail(self.name, replica, text)
            rows.append(row)
        self.topics.on_acknowledged(topic, queue_id, replica.name)
        if request.asker in self._polite:
            check_stored(self._truth, replica, request, rows)

    def _on_lock(self, replica: Replica, request: Said, answer: Said) -> None:
        asked: Asked = request.note
        if answer.code != SUCCESS or request.asker not in self._polite:
            return
        wanted, given = json.loads(request.body), json.loads(answer.body)["lockOKMQSet"]
        client, group = wanted["clientId"], wanted["consumerGroup"]
        granted = {(group, queue["topic"], queue["queueId"]) for queue in given}
        since = self._truth.statements[asked.statements :]
        freed = {
            key for key in granted if any(changes_lock(one, "", key, "unlock") for one in since)
        }  # by somebody else meanwhile
        self.early.on_lock(replica, client, granted - freed)
        for queue in wanted["mqSet"]:
            key = (group, queue["topic"], queue["queueId"])
            if key in granted and not any(changes_lock(one, client, key) for one in since):
                self._fail(self.lock_name, replica, f"gives {key} to {client} without a record")
            # What is refused is so when the request comes: its lock may be given back since.
            if key not in granted and not any(
                changes_lock(one, "", key, "unlock") for one in since
            ):
                self._check_refusal(replica, key, client)

    def _check_refusal(self, replica: Replica, key: tuple[str, str, int], client: str) -> None:
        model = self._tables.model_of(replica)
        if model is None:
            return
        held = model.locks.get(key)
        since_ns = max(0 if held is None else held.since_ns, replica.boot_ns)
        lease_ns_max = 2 * self._tables.lease_ms * NS_PER_MS + LEASE_SLACK_NS
        is_old = self._truth.now_ns() - since_ns > lease_ns_max
        waits = any(
            one.code == LOCK for tap in self._taps[replica.name] for one in tap.open.values()
        )
        if (held is None or held.owner == client or is_old) and not waits:
            self._fail(self.lock_name, replica, f"refuses {key} to {client}: {held} in the log")

    def _check_record(self, replica: Replica, record: bytes, what: str) -> EntryRow:
        at = int.from_bytes(record[28:36], "big")
        row = self._truth.positions.get(at)
        if row is None or self._truth.crcs.get((row.entry_index, row.term)) != crc32(record):
            place = _place(record, 12)
            self._fail(self.name, replica, f"{what}: the record of {place} at {at} is not {row}")
        assert row is not None
        return row

    def _begin(self, replica: Replica, topic: str, queue_id: int) -> int:
        rows = self._truth.queues.get((topic, queue_id), [])
        return bisect_left(rows, replica.store.first_index, key=_entry_index)

    def _fail(self, oracle: str, replica: Replica, text: str) -> None:
        raise Violation(oracle, f"{replica.name} {text}", node=replica.name)


def _topic(request: Said) -> str:
    """Return the topic of a send, whose names may have one letter."""
    return request.text("b") or request.text("topic")


def _place_of(request: Said) -> tuple[str, str, int]:
    return request.text("consumerGroup"), request.text("topic"), request.number("queueId")
