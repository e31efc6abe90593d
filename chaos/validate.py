"""Is what a table or run.json says possible at all? Asked before anything is judged.

A null in a required column, a word that no column knows, a negative offset, times in another unit:
each would be read as some outcome of a message and end in a verdict about a system that never ran.
Here they become complaints, each with the row and what to do, and the verdict is at best unknown.

Pure. Knows the declared columns and their domains; the Spark job has code of its own for the same.
Source: spec/proof.md 4.3; docs/checking.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chaos.history.columns import Row, are_twice
from chaos.history.domains import (
    BEGIN_NS,
    CHECK_BACK,
    CLOCKS,
    CONTRACT_WORDS,
    EVEN,
    FILLED,
    KEYS,
    LEAST,
    LONG_RUNNING_NS,
    MODES,
    ORDERED,
    SHARES,
    TIMES,
    TOLERANCE,
    TOLERANCE_MAX_NS,
    TRIES,
    UNITS_APART,
    WITHOUT_RAFT,
    WORDS,
)
from chaos.history.tables import Column

COMPARED = 4
"""So many columns of a key are looked at first: rows that differ in them are not the same."""


def complaints_of(table: str, column: Column, values: pa.ChunkedArray) -> list[str]:
    """Return what is wrong with one column of a file, a line for each rule it breaks."""
    name, found = column.name, []
    if not column.nullable and values.null_count:
        where = _rows(pc.is_null(values))
        found.append(f"{where}: {name} is null, but required: give it a value or drop the row")
    words = WORDS.get((table, name))
    if words is not None and pa.types.is_string(values.type):
        odd = pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, pa.array(words))))
        found += _odd(odd, values, name, f"write one of {', '.join(dict.fromkeys(words))}")
    least = LEAST.get((table, name))
    if least is not None and pa.types.is_integer(values.type):
        odd = pc.fill_null(pc.less(values, least), fill_value=False)
        found += _odd(odd, values, name, f"it must be at least {least}, or null if unknown")
    if (table, name) == ("sends", "tries"):
        flat = pc.unique(pc.list_flatten(values)).to_pylist()
        strange = sorted({str(word) for word in flat} - set(TRIES))
        if strange:
            found.append(f"{name} has the words {', '.join(strange)}; write {', '.join(TRIES)}")
    elif pa.types.is_list(values.type) and pc.list_flatten(values).null_count:
        found.append(f"{name} has a list with null in it: leave it out of the list")
    return found


def complaints_about(about: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the content of run.json."""
    found = [
        f"{name} is {about[name]!r}; write {shape}"
        for name, right, shape in (
            ("nodes", list | dict | int, "a list of the nodes' names"),
            ("problems", list, "a list of lines"),
            ("tables", list, "a list of the names of tables"),
            ("left_out", list, "a list of the names of tables"),
            ("coverage", dict, "the least number of effective faults by kind"),
            ("contract", dict, "an object"),
            ("quorum", int | dict, "a number of nodes, or such numbers by group"),
            ("subscriptions", dict, "lists of tags by topic, by group"),
            ("exits", list, "a list of processes that ended by themselves"),
            ("modes", dict, "how each group consumes"),
            ("reconsume_max", dict, "how often a group gets a message again, by group"),
            (TOLERANCE, int, "a number of nanoseconds"),
            ("check_back", dict, "when producers are asked how a transaction ended"),
            ("run_id", str, "a name"),
            ("topic", str, "the name of a topic"),
            ("group", str, "the name of a group"),
        )
        if about.get(name) is not None
        and (isinstance(about[name], bool) or not isinstance(about[name], right))
    ]
    quorum, coverage, contract = (about.get(key) for key in ("quorum", "coverage", "contract"))
    found += [
        f"quorum{where} is {number!r}; it must be a number of nodes, at least 1"
        for where, number in _quorums(quorum)
        if type(number) is not int or number < 1
    ]
    if isinstance(coverage, dict):
        found += [
            f"coverage of {kind} is {least!r}; write a number of faults"
            for kind, least in coverage.items()
            if type(least) is not int or least < 0
        ]
    tolerance = about.get(TOLERANCE)
    if isinstance(tolerance, int) and not 0 <= tolerance <= TOLERANCE_MAX_NS:
        found.append(f"{TOLERANCE} is {tolerance}; write 0 to {TOLERANCE_MAX_NS}")
    found += _group_complaints(about) + _check_back_complaints(about.get("check_back"))
    found += [*_subscription_complaints(about.get("subscriptions"))]
    exits = about.get("exits")
    found += [
        f"exits has {row!r}; write an object with process, exit and log for each"
        for row in (exits if isinstance(exits, list) else ())
        if not isinstance(row, dict)
    ]
    return found + (_contract_complaints(contract) if isinstance(contract, dict) else [])


def _quorums(quorum: object) -> list[tuple[str, object]]:
    """Return the numbers that stand under quorum, each with the words for where."""
    if isinstance(quorum, dict):
        return [(f" of {group}", number) for group, number in quorum.items()]
    return [("", quorum)] if type(quorum) is int else []


def _group_complaints(about: Mapping[str, Any]) -> list[str]:
    modes, most = about.get("modes"), about.get("reconsume_max")
    found = [
        f"modes of {group} is {mode!r}; write one of {', '.join(MODES)}"
        for group, mode in (modes.items() if isinstance(modes, dict) else ())
        if mode not in MODES
    ]
    return found + [
        f"reconsume_max of {group} is {times!r}; write a number of times"
        for group, times in (most.items() if isinstance(most, dict) else ())
        if type(times) is not int or times < 0
    ]


def _subscription_complaints(told: object) -> Iterator[str]:
    """Yield what is no list of tags: read as nothing, it would subscribe to all of the topic."""
    for group, topics in told.items() if isinstance(told, dict) else ():
        if not isinstance(topics, dict):
            yield f"subscriptions of {group} is {topics!r}; write lists of tags by topic"
            continue
        for topic, tags in topics.items():
            if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
                yield f"subscriptions of {group} to {topic} is {tags!r}; write a list of tags"


def _check_back_complaints(told: object) -> list[str]:
    numbers = {name: told.get(name) for name in CHECK_BACK} if isinstance(told, dict) else {}
    return [
        f"check_back.{name} is {number!r}; write a number, 0 or more"
        for name, number in numbers.items()
        if type(number) is not int or number < 0
    ]


def _contract_complaints(contract: Mapping[str, Any]) -> list[str]:
    found = [
        f"contract.{name} is {contract[name]!r}; write one of {', '.join(words)}"
        for name, words in CONTRACT_WORDS.items()
        if name in contract and contract[name] not in words
    ]
    for name in SHARES:
        ratio = contract.get(name, 0)
        if not _is_number(ratio) or not 0 <= ratio <= 1:
            found.append(f"contract.{name} is {ratio!r}; write a number of 0..1")
    for name in TIMES:
        time = contract.get(name, 0)
        if not _is_number(time) or time < 0:
            found.append(f"contract.{name} is {time!r}; write a number of milliseconds")
    return found


def unknown_bounds(contract: object) -> list[str]:
    """Return what a contract says and no check goes by: a misspelt bound binds nobody."""
    known = {*CONTRACT_WORDS, *SHARES, *TIMES}
    return [
        f"contract.{name} is no part of a contract: write one of {', '.join(sorted(known))}"
        for name in (contract if isinstance(contract, dict) else ())
        if name not in known
    ]


def usable_contract(told: object) -> dict[str, Any]:
    """Return what run.json's contract says, without bounds that are no numbers of at least 0."""
    contract = told if isinstance(told, dict) else {}
    bounds = {*TIMES, *SHARES}
    return {n: v for n, v in contract.items() if n not in bounds or (_is_number(v) and v >= 0)}


def usable_limits(told: object) -> dict[str, int]:
    """Return what of run.json's reconsume_max are numbers of times."""
    limits = told.items() if isinstance(told, dict) else ()
    return {group: times for group, times in limits if type(times) is int and times >= 0}


def _is_number(value: object) -> bool:
    """Tell whether a value is a number: yes and no are none, nor what JSON calls NaN."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def order_complaints(table: str, times: Mapping[str, pa.ChunkedArray]) -> list[str]:
    """Return which rows of a file end before they begin."""
    found = []
    for begin, end in ORDERED.get(table, ()):
        if begin in times and end in times:
            odd = pc.fill_null(pc.less(times[end], times[begin]), fill_value=False)
            remedy = f"it lies before {begin}: write both by one clock, in nanoseconds"
            found += _odd(odd, times[end], end, remedy)
    return found


def doubled(table: str, rows: Sequence[Row]) -> str:
    """Return which row stands in a table twice, in words; empty if none does."""
    key = KEYS.get(table, ())
    if not key:
        return ""
    told = [number for number, row in enumerate(rows) if row[key[0]] is not None]
    few = key[:COMPARED]
    alike = are_twice(tuple(rows[number][name] for name in few) for number in told)
    seen: dict[tuple[object, ...], int] = {}
    twice: list[tuple[int, int]] = []
    for number in told if alike else ():
        row = rows[number]
        if hash(tuple(row[name] for name in few)) in alike:
            first = seen.setdefault(tuple(row[name] for name in key), number)
            twice += [(first, number)] if first != number else []
    if not twice:
        return ""
    first, number = twice[0]
    words = ", ".join(f"{name} {rows[number][name]}" for name in key[:2])
    more = f", and so are {len(twice) - 1} more" if len(twice) > 1 else ""
    return f"row {number} is row {first} once more ({words}){more}: write each row once"


def uneven(table: str, rows: Sequence[Row]) -> str:
    """Return which column some rows of one kind fill and others do not; empty if there is none."""
    if table not in EVEN:
        return ""
    name, kind = EVEN[table]
    seen = {(str(row[kind]), row[name] is not None) for row in rows}
    odd = sorted(word for word, is_filled in seen if is_filled and (word, False) in seen)
    if not odd:
        return ""
    return f"{name} is null in some rows of {kind} {odd[0]}: write it in all of them or in none"


def clock_complaints(tables: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """Return which tables' times cannot be of the clock and unit of the others, and why.

    Both ends have to be apart: of what happened once, soon after the begin, only the latest is.
    Where the clock ran long before anything was sent, one time that is apart is enough.
    """
    ends: dict[tuple[str, str], tuple[int, int]] = {}
    for name, columns in CLOCKS.items():
        for column in columns:
            first, last = 0, 0
            for row in tables.get(name, ()):
                t = row[column] or 0
                if t > 1:  # 0 and 1 are the first moment of a clock in whatever unit
                    first, last = min(first or t, t), max(last, t)
            if last:
                ends[name, column] = (first, last)
    if ("sends", "t_inv") not in ends:
        return {}
    begin, end = ends["sends", "t_inv"]
    begin = max(BEGIN_NS, begin)
    found: dict[str, str] = {}
    for (name, column), (first, last) in ends.items():
        is_long = begin > LONG_RUNNING_NS
        alone = is_long and (first * UNITS_APART < begin or last > end * UNITS_APART)
        if alone or (_are_apart(first, begin) and _are_apart(last, end)):
            found.setdefault(
                name,
                f"the times of {name} ({column} {first} to {last}) and of sends (t_inv up to "
                f"{end}) are not of one clock and unit: write nanoseconds of one monotonic clock",
            )
    return found


def unfilled(about: Mapping[str, Any], rows: Mapping[str, int]) -> list[str]:
    """Return the tables that run.json names and that have no rows, though somebody wrote them.

    ``rows``: how many each has that is there.
    """
    named, contract = about.get("tables"), about.get("contract")
    durability = contract.get("durability") if isinstance(contract, dict) else None
    return [
        name
        for name in (named if isinstance(named, list) else ())
        if name in FILLED and rows.get(name) == 0
        # Brokers of pairs note no steps.
        if not (name == "raft_event" and durability in WITHOUT_RAFT)
    ]


def _are_apart(one: int, other: int) -> bool:
    return max(one, other) > UNITS_APART * min(one, other)


def _odd(odd: pa.ChunkedArray, values: pa.ChunkedArray, name: str, remedy: str) -> list[str]:
    if not pc.any(odd).as_py():
        return []
    first = pc.index(odd, True).as_py()
    return [f"{_rows(odd)}: {name} is {values[first].as_py()!r}; {remedy}"]


def _rows(odd: pa.ChunkedArray) -> str:
    """Return the first row of which something is true, and how many more there are."""
    number = pc.sum(odd).as_py()
    first = pc.index(odd, True).as_py()
    return f"row {first}" + (f" and {number - 1} more" if number > 1 else "")
