"""At several places, and which message at which place: A8 A15. Source: spec/proof.md 3.3, 3.4."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from chaos.catalogue.checks import CRIT
from chaos.checker.compact import NOTHING, Place, Places, Spots
from chaos.checker.messages import refused
from chaos.checker.model import INVALID, History, Replica, Result, is_copy, result
from chaos.history.columns import Row
from chaos.history.segment import EntryRow

QueuePlace = tuple[str | None, int | None, int | None]
NOWHERE: Final = -1
"""For the offset of what has none."""


def check_duplicates(history: History) -> Result:
    """A8: a message at more places of the log than attempts were made to send it.

    Fewer or as many is legal under at-least-once: the client sends again after a lost reply. More
    go beyond that contract; they are invalid where the contract says exactly once.
    """
    twice = _at_several(history)
    found = []
    for key, held in sorted(twice.items()):
        attempts = _attempts(history.by_key[key])
        if len(held) > attempts:
            shown = ", ".join(sorted(f"{t}/{q}@{offset}" for t, q, offset in held))
            explain = f"message {key} lies at {shown}, after {attempts} attempts"
            found.append({"msg_key": key, "attempts": attempts, "explain": explain})
    summary = f"{len(twice)} messages lie at several places, {len(found)} at more than attempts"
    copies = result("A8", found, summary, at_several_places=len(twice))
    if found and history.contract.get("duplicates") in {"exactly-once", "idempotent"}:
        return replace(copies, verdict=INVALID, severity=CRIT)
    return copies


def _at_several(history: History) -> dict[int, set[QueuePlace]]:
    """Return the places of the messages that were seen, or lie committed, at more than one."""
    sends, disputed = history.by_key, _disputed(history)
    queues: dict[tuple[str | None, int | None], int] = {}
    first_queue, first_offset = (array("q", [NOTHING]) * sends.size for _ in range(2))
    several: set[int] = set()
    for key, (topic, queue_id, offset) in _seen_at(history, disputed):
        number = sends.number.get(key)
        if number is None:
            continue
        queue = queues.setdefault((topic, queue_id), len(queues))
        at = NOWHERE if offset is None else offset
        if first_queue[number] == NOTHING:
            first_queue[number], first_offset[number] = queue, at
        elif first_queue[number] != queue or first_offset[number] != at:
            several.add(key)
    found: dict[int, set[QueuePlace]] = defaultdict(set)
    for key, place in _seen_at(history, disputed) if several else ():
        if key in several:
            found[key].add(place)
    return found


def _seen_at(
    history: History, disputed: Collection[tuple[str, int]]
) -> Iterator[tuple[int, QueuePlace]]:
    """Yield the messages that were delivered, or are committed, each with a place of it."""
    for delivery in history.own:
        if delivery["msg_key"] is not None and not is_copy(delivery):
            yield delivery["msg_key"], _queue_place(delivery)
    for row, replica in _committed_messages(history):
        if row.msg_key is not None and (replica.group, row.entry_index) not in disputed:
            yield row.msg_key, (row.topic, row.queue_id, row.queue_offset)


def _attempts(sends: Sequence[Row]) -> int:
    """Return how many attempts of a message may have stored it: what was refused did not."""
    return sum(max(1, send.get("attempts") or 1) for send in sends if not refused(send))


def _disputed(history: History) -> set[tuple[str, int]]:
    """Return group and index of what replicas committed differently, messages or not.

    Nobody knows what lies there: A34, A35.
    """
    contents: dict[str, Spots] = defaultdict(Spots)
    found: set[tuple[str, int]] = set()
    for replica in history.replicas:
        known = contents[replica.group]
        for row in replica.committed():
            is_sound = row.crc_ok or replica.node not in history.damaged_nodes
            if is_sound and known.first(row.entry_index, row.entry_crc) != row.entry_crc:
                found.add((replica.group, row.entry_index))
    return found


def check_offsets(history: History) -> Result:
    """A15: one offset of a queue is different messages to different observers.

    Observers: acknowledged sends, every delivery, what replicas committed. Also: a message that
    was acknowledged or delivered at a place where it does not lie, by the logs; or, where no whole
    logs tell, by its deliveries.
    """
    odd, number = _differing(history)
    views = _Views()
    for place, seen, words in _observed(history) if odd else ():
        if place in odd:
            views.add(place, seen, words())
    found = views.disputes()
    disputed = len(found)
    found += _misplaced(history)
    summary = f"{disputed} of {number} places are in dispute"
    if len(found) > disputed:
        summary += f"; {len(found) - disputed} messages were seen where they do not lie"
    return result("A15", found, summary)


def _observed(
    history: History,
) -> Iterator[tuple[Place, tuple[int | None, int | None], Callable[[], str]]]:
    """Yield what observers saw at places: key and hash of the body, and the words for who did."""
    for send in history.ok_sends:
        place = history.place(send)
        if place is not None:
            seen = (send["msg_key"], send["body_hash"])
            yield place, seen, partial("send {0[msg_key]} (op {0[op_id]})".format, send)
    for row in history.placed:
        place = history.place(row)
        if place is not None:
            seen = (row["msg_key"], row["body_hash"])
            yield place, seen, partial("delivery of {0[msg_key]} to {0[grp]}".format, row)
    for place, entry, node in _placed_entries(history):
        words = "{0} index {1.entry_index} holds {1.msg_key}".format
        yield place, (entry.msg_key, entry.body_hash), partial(words, node, entry)


def _differing(history: History) -> tuple[set[Place], int]:
    """Return the places of which not all observers may say the same, and of how many any does."""
    keys, hashes, places = Places(), Places(), Places()
    found: set[Place] = set()
    for place, (key, digest), _ in _observed(history):
        if key is not None or digest is not None:
            places.first(place, 0)
        is_odd = key is not None and keys.first(place, key) != key
        is_odd = is_odd or NOTHING in {key, digest}  # which arrays cannot hold
        if is_odd or (digest is not None and hashes.first(place, digest) != digest):
            found.add(place)
    return found, len(places)


class _Views:
    """What observers saw at each place: keys and hashes of bodies, each with who saw it first."""

    def __init__(self) -> None:
        self._keys: dict[Place, dict[int, str]] = defaultdict(dict)
        self._hashes: dict[Place, dict[int, str]] = defaultdict(dict)

    def add(self, place: Place, seen: tuple[int | None, int | None], words: str) -> None:
        """Note what an observer saw; what it could not tell is None and disputes nothing."""
        key, digest = seen
        if key is not None:
            self._keys[place].setdefault(key, words)
        if digest is not None:
            self._hashes[place].setdefault(digest, words)

    def disputes(self) -> list[Row]:
        """Return the places where observers differ."""
        found: list[Row] = []
        for place in sorted(self._keys.keys() | self._hashes.keys()):
            seen = (self._keys.get(place, {}), self._hashes.get(place, {}))
            if max(map(len, seen)) > 1:
                observers = list(dict.fromkeys([*seen[0].values(), *seen[1].values()]))
                where = f"{place[0]}/{place[2]}@{place[3]}"
                explain = f"{where}: " + "; ".join(observers)
                found.append({"place": where, "observers": observers, "explain": explain})
        return found


def _misplaced(history: History) -> list[Row]:
    """Return what was acknowledged or delivered at a place where no replica's log has anything.

    Said only of messages that the logs, which are whole, hold elsewhere.
    """
    if not _are_whole(history):
        return _elsewhere(history)
    known = Places()
    for place, _ in _in_logs(history):
        known.first(place, 0)
    seen = [
        (
            about["msg_key"],
            place,
            f"delivered to {about['grp']}" if is_given else "acknowledged",
        )
        for about, place, is_given in _told_places(history)
        if place not in known
    ]
    absent = {key for key, _, _ in seen}
    held: dict[int | None, set[Place]] = defaultdict(set)
    for at, key in _in_logs(history) if absent else ():
        if key is not None and key in absent:
            held[key].add(at)
    found: dict[tuple[int, Place], Row] = {}
    for key, at, what in seen:
        if key in held:
            where, there = f"{at[0]}/{at[2]}@{at[3]}", min(held[key])
            explain = (
                f"message {key} was {what} at {where}, where no log has anything; it lies at "
                f"{there[0]}/{there[2]}@{there[3]}"
            )
            found.setdefault((key, at), {"key": where, "msg_key": key, "explain": explain})
    return list(found.values())


def _told_places(history: History) -> Iterator[tuple[Row, Place, bool]]:
    """Yield what was acknowledged or delivered, at which place, and whether it was delivered."""
    for rows, is_delivered in ((history.ok_sends, False), (history.placed, True)):
        for row in rows:
            place = history.place(row)
            if place is not None:
                yield row, place, is_delivered


def _in_logs(history: History) -> Iterator[tuple[Place, int | None]]:
    """Yield the places of messages that logs hold, committed or not, each with its key."""
    for replica in history.replicas:
        for row in replica.rows:
            place = _place_in_log(history, row)
            if place is not None:
                yield place, row.msg_key


def _are_whole(history: History) -> bool:
    """Tell whether there are logs, and each has its beginning."""
    return bool(history.replicas) and all(one.first_index <= 0 for one in history.replicas)


def _elsewhere(history: History) -> list[Row]:
    """Return messages that never came from where they were acknowledged, but from elsewhere.

    Said only of what then would lie at more places than attempts were made to send it.
    """
    there = bytearray(history.by_key.size)
    for row in history.own:
        known = history.ok_places.get(history.place(row))
        if known is not None and known["msg_key"] == row["msg_key"] and not is_copy(row):
            there[history.by_key.number[row["msg_key"]]] = 1
    told_at = (send for send in history.ok_sends if history.place(send) is not None)
    wanted = {key for send in told_at if not there[history.by_key.number[key := send["msg_key"]]]}
    seen: dict[int, set[Place | None]] = defaultdict(set)
    for row in history.own if wanted else ():
        if row["msg_key"] in wanted and not is_copy(row):
            seen[row["msg_key"]].add(history.place(row))
    told: dict[int, set[Place]] = defaultdict(set)
    for send in history.ok_sends if wanted else ():
        place = history.place(send)
        if place is not None and send["msg_key"] in seen:
            told[send["msg_key"]].add(place)
    found: list[Row] = []
    for key, places in sorted(told.items()):
        attempts = _attempts(history.by_key[key])
        came = {place for place in seen[key] if place is not None}
        is_known = len(came) == len(seen[key])
        if is_known and not places & came and len(places | came) > attempts:
            where, other = (f"{at[0]}/{at[2]}@{at[3]}" for at in (min(places), min(came)))
            explain = f"message {key} was acknowledged at {where}, and came only from {other}"
            found.append({"key": where, "msg_key": key, "explain": explain})
    return found


def _placed_entries(history: History) -> Iterator[tuple[Place, EntryRow, str]]:
    """Yield (place, entry, node) of committed messages."""
    for row, replica in _committed_messages(history):
        place = _place_in_log(history, row)
        if place is not None:
            yield place, row, replica.node


def _place_in_log(history: History, row: EntryRow) -> Place | None:
    """Return the place of an entry's message; None for another topic, or one recreated since."""
    if row.type != "message" or row.topic is None or row.topic not in history.epochs:
        return None
    low, high = history.epochs[row.topic]
    if low != high or row.queue_id is None or row.queue_offset is None:
        return None
    return row.topic, high, row.queue_id, row.queue_offset


def _committed_messages(history: History) -> Iterator[tuple[EntryRow, Replica]]:
    """Yield (entry, its replica) of messages of the run's topics, committed and undamaged."""
    for replica in history.replicas:
        for row in replica.committed():
            if row.type == "message" and row.crc_ok and row.topic in history.epochs:
                yield row, replica


def _queue_place(row: Row) -> QueuePlace:
    return row["topic"], row["queue_id"], row["queue_offset"]
