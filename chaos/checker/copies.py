"""At several places, and which message at which place: A8 A15. Source: spec/proof.md 3.3, 3.4."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from chaos.catalogue.checks import CRIT
from chaos.checker.messages import refused
from chaos.checker.model import INVALID, History, Place, Replica, Result, Row, is_copy, result
from chaos.history.segment import EntryRow

QueuePlace = tuple[str | None, int | None, int | None]


def check_duplicates(history: History) -> Result:
    """A8: a message at more places of the log than attempts were made to send it.

    Fewer or as many is legal under at-least-once: the client sends again after a lost reply. More
    go beyond that contract; they are invalid where the contract says exactly once.
    """
    places: dict[int, set[QueuePlace]] = defaultdict(set)
    for delivery in history.own:
        if delivery["msg_key"] is not None and not is_copy(delivery):
            places[delivery["msg_key"]].add(_queue_place(delivery))
    disputed = _disputed(history)
    for row, replica in _committed_messages(history):
        is_agreed = (replica.group, row.entry_index) not in disputed
        if row.msg_key is not None and is_agreed:
            places[row.msg_key].add((row.topic, row.queue_id, row.queue_offset))
    twice = {key: held for key, held in places.items() if len(held) > 1 and key in history.by_key}
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


def _attempts(sends: Sequence[Row]) -> int:
    """Return how many attempts of a message may have stored it: what was refused did not."""
    return sum(max(1, send.get("attempts") or 1) for send in sends if not refused(send))


def _disputed(history: History) -> set[tuple[str, int]]:
    """Return group and index of what replicas committed differently, messages or not.

    Nobody knows what lies there: A34, A35.
    """
    contents: dict[tuple[str, int], set[int]] = defaultdict(set)
    for replica in history.replicas:
        for row in replica.committed():
            if row.crc_ok or replica.node not in history.damaged_nodes:
                contents[replica.group, row.entry_index].add(row.entry_crc)
    return {at for at, found in contents.items() if len(found) > 1}


def check_offsets(history: History) -> Result:
    """A15: one offset of a queue is different messages to different observers.

    Observers: acknowledged sends, every delivery, what replicas committed. Also: a message that
    was acknowledged or delivered at a place where it does not lie, by the logs; or, where no whole
    logs tell, by its deliveries.
    """
    views = _Views()
    for send in history.ok_sends:
        place = history.place(send)
        if place is not None:
            words = f"send {send['msg_key']} (op {send['op_id']})"
            views.add(place, (send["msg_key"], send["body_hash"]), words)
    for row in history.placed:
        place = history.place(row)
        if place is not None:
            words = f"delivery of {row['msg_key']} to {row['grp']}"
            views.add(place, (row["msg_key"], row["body_hash"]), words)
    for place, entry, node in _placed_entries(history):
        words = f"{node} index {entry.entry_index} holds {entry.msg_key}"
        views.add(place, (entry.msg_key, entry.body_hash), words)
    found = views.disputes()
    disputed = len(found)
    found += _misplaced(history)
    summary = f"{disputed} of {len(views)} places are in dispute"
    if len(found) > disputed:
        summary += f"; {len(found) - disputed} messages were seen where they do not lie"
    return result("A15", found, summary)


class _Views:
    """What observers saw at each place: keys and hashes of bodies, each with who saw it first."""

    def __init__(self) -> None:
        self._keys: dict[Place, dict[int, str]] = defaultdict(dict)
        self._hashes: dict[Place, dict[int, str]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._keys.keys() | self._hashes.keys())

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
    held: dict[int, set[Place]] = defaultdict(set)
    known: set[Place] = set()
    for replica in history.replicas:
        for row in replica.rows:
            at = _place_in_log(history, row)
            if at is not None:
                known.add(at)
                if row.msg_key is not None:
                    held[row.msg_key].add(at)
    found: dict[tuple[int, Place], Row] = {}
    seen = [(send, "acknowledged") for send in history.ok_sends]
    seen += [(delivery, f"delivered to {delivery['grp']}") for delivery in history.placed]
    for about, what in seen:
        place, key = history.place(about), about["msg_key"]
        if key in held and place is not None and place not in known:
            where, there = f"{place[0]}/{place[2]}@{place[3]}", min(held[key])
            explain = (
                f"message {key} was {what} at {where}, where no log has anything; it lies at "
                f"{there[0]}/{there[2]}@{there[3]}"
            )
            found.setdefault((key, place), {"key": where, "msg_key": key, "explain": explain})
    return list(found.values())


def _are_whole(history: History) -> bool:
    """Tell whether there are logs, and each has its beginning."""
    return bool(history.replicas) and all(one.first_index <= 0 for one in history.replicas)


def _elsewhere(history: History) -> list[Row]:
    """Return messages that never came from where they were acknowledged, but from elsewhere.

    Said only of what then would lie at more places than attempts were made to send it.
    """
    seen: dict[int, set[Place | None]] = defaultdict(set)
    for row in history.own:
        if row["msg_key"] is not None and not is_copy(row):
            seen[row["msg_key"]].add(history.place(row))
    told: dict[int, set[Place]] = defaultdict(set)
    for send in history.ok_sends:
        place = history.place(send)
        if place is not None and send["msg_key"] in seen:
            told[send["msg_key"]].add(place)
    found = []
    for key, places in sorted(told.items()):
        attempts = _attempts(history.by_key[key])
        there = {place for place in seen[key] if place is not None}
        is_known = len(there) == len(seen[key])
        if is_known and not places & there and len(places | there) > attempts:
            where, other = (f"{at[0]}/{at[2]}@{at[3]}" for at in (min(places), min(there)))
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
