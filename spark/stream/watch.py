"""``python -m spark.stream.watch RUN``: what a run that goes on already shows, as a stream.

Recordings are landed as files (`spark.stream.feed`), Structured Streaming reads them, and each
batch is laid over what is kept of earlier ones (`spark.stream.memory`). Alarms go to the terminal
and to ``RUN/watch/alarms.jsonl`` as they are found. It ends with the run, or with Ctrl-C.

Exit codes: 0 all was seen, and no alarm; 1 an alarm; 2 no alarm, but the run died before its end;
130 interrupted (143 by SIGTERM), 254 usage, 255 the watch itself failed. Source: docs/chaos.md.
"""

import argparse
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, Self

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console

from chaos.catalogue.checks import CHECKS as ENTRIES
from spark.history import few_rows
from spark.job import describe_error
from spark.result import EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID
from spark.session import JvmNotFoundError, open_session
from spark.stream import memory
from spark.stream.feed import LANDING, SCHEMA, Feed
from spark.stream.memory import Marks
from spark.stream.place import ALARMS_FILE, FOLDER, CannotWatchError, Life, clear, life_of, taken
from spark.stream.replicas import Replicas
from spark.stream.told import Line, Say, teller

LOOK_EVERY_S: Final = 0.5
AHEAD_MAX: Final = 200_000
"""So many rows may wait to be read by the stream: more of a recording is left where it is."""
MEMORY: Final = "1g"
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143
ALARMS_TOLD_MAX: Final = 10_000
"""More alarms are counted, not written: by then nobody reads them."""
_SHAPES: Final = {
    "messages": memory.MESSAGES,
    "places": memory.PLACES,
    "calls": memory.CALLS,
}
SETTINGS: Final = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.shuffle.partitions": "1",
    # Each batch has other numbers in its plans: to compile them takes longer than to run them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of the session: batches are small, and they come every second."""


@dataclass(slots=True)
class Stop:
    """Asks a watch to end: ``by`` is the number of the signal that asked, 0 while none did."""

    by: int = 0


@dataclass(slots=True)
class Stream:
    """What is kept between batches, and what each batch makes of it."""

    session: SparkSession
    folder: Path
    say: Say
    feed: Feed
    marks: Marks = field(default_factory=Marks)
    alarms: int = 0
    rows: int = 0
    taken: int = 0
    """Rows that were read and judged, marks too."""
    life: Life = Life.GOES_ON
    failure: Exception | None = None
    """Why a batch was not taken."""
    kept: int = 0
    """Rows of messages and places that are kept now."""
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _states: dict[str, DataFrame] = field(default_factory=dict)
    _replicas: Replicas = field(default_factory=Replicas)
    _floors: dict[int, int] = field(default_factory=dict)
    """By producer, the highest number that was forgotten."""

    @classmethod
    def of(cls, session: SparkSession, run: Path, say: Say, folder: Path | None = None) -> Self:
        """Return the stream of a run; what an earlier watch kept of it is removed.

        ``folder``: where the watch lies, by default in the run.
        """
        folder = folder or run / FOLDER
        clear(folder)
        return cls(session=session, folder=folder, say=say, feed=Feed(run, folder / LANDING))

    def start(self) -> StreamingQuery:
        """Start the query over what the feed lands."""
        for name, value in SETTINGS.items():
            self.session.conf.set(name, value)
        return (
            self.session.readStream.schema(from_arrow_schema(SCHEMA))
            .option("cleanSource", "delete")
            .parquet(str(self.folder / LANDING))
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    @property
    def whole(self) -> bool:
        """Whether all that will ever be recorded was seen."""
        return self.life is Life.OVER and self.taken == self.feed.landed

    def take(self, facts: DataFrame, batch: int) -> None:
        """Lay a batch over what is kept, tell its alarms, and keep what comes of it.

        What fails is kept as ``failure``, and no batch is taken any more.
        """
        if self.failure is not None:
            return
        try:
            self._take(facts, batch)
        except Exception as error:  # noqa: BLE001 - Spark would print a trace of both languages
            self.failure = error

    def _take(self, facts: DataFrame, batch: int) -> None:
        facts = facts.persist()
        counted = facts.filter("what <> 'mark'").count()
        self.rows += counted
        plain = [row.asDict() for row in facts.filter("what in ('mark', 'probe')").collect()]
        of_what = {name: [r for r in plain if r["what"] == name] for name in ("mark", "probe")}
        self._advance([(row["rows"], row["t"], row["due"]) for row in of_what["mark"]])
        states = {
            name: self._states.get(name, few_rows(self.session, [], _SHAPES[name]))
            for name in _SHAPES
        }
        folded = {
            "messages": memory.fold_messages(states["messages"], facts).persist(),
            "places": memory.fold_places(states["places"], facts).persist(),
            "calls": memory.fold_calls(states["calls"], facts).persist(),
        }
        floors = few_rows(self.session, list(self._floors.items()), memory.FLOORS)
        of_messages = memory.message_alarms(folded["messages"], floors, self.marks)
        of_queues = memory.call_alarms(folded["calls"])
        for of_places in (memory.place_alarms, memory.order_alarms):
            of_queues = of_queues.unionByName(of_places(folded["places"]))
        new = of_messages.unionByName(of_queues).limit(ALARMS_TOLD_MAX).collect()
        heard = self._replicas.hear(of_what["probe"], forget=self.feed.nodes_forget)
        for alarm in (*new, *heard):
            self._alarm(alarm, batch)
        doubt = memory.suspects(folded["messages"], self.marks).first()
        assert doubt is not None, "an aggregate of no rows is a row"
        if doubt.oldest < self.marks.latest - memory.KEPT_NS:
            for row in memory.forgotten(folded["messages"], self.marks).collect():
                self._floors[row.pid] = max(row.seq, self._floors.get(row.pid, row.seq))
        self._keep(self._remembered(folded, new), batch)
        self.say(self._line(batch, counted, doubt))
        for rows in (facts, *folded.values()):
            rows.unpersist()
        self.taken += counted + len(of_what["mark"])

    def _advance(self, marks: list[tuple[int, int, int]]) -> None:
        """Believe the marks before which everything has come: files may come out of order."""
        self._waiting = sorted([*self._waiting, *marks])
        while self._waiting and self._waiting[0][0] <= self.rows:
            _, complete, latest = self._waiting.pop(0)
            self.marks = Marks(
                complete=max(self.marks.complete, complete),
                latest=max(self.marks.latest, latest),
            )
        self.marks = replace(self.marks, clocks_move=self.feed.clocks_move)

    def _remembered(self, folded: dict[str, DataFrame], new: list[Any]) -> dict[str, DataFrame]:
        """Return the states, each row with the alarms that were told of it."""
        queue = F.concat_ws("", "topic", F.lit("/"), "queue_id")
        keys = [
            ("messages", F.col("msg_key")),
            ("places", F.concat_ws("@", queue, "queue_offset")),
            ("places", F.col("sent_last.key")),
            ("calls", queue),
        ]
        out = dict(folded)
        if new:
            told = [(row.check, row.key) for row in new]
            alarms = few_rows(self.session, told, "check string, key string")
            for name, key in keys:
                out[name] = memory.told(out[name], alarms, key.cast("string"))
        return {name: memory.forget(rows, self.marks) for name, rows in out.items()}

    def _keep(self, states: dict[str, DataFrame], batch: int) -> None:
        """Write the states of this batch; those before the last are removed."""
        self.kept = 0
        for name, rows in states.items():
            path = self.folder / "state" / name / str(batch)
            rows.write.mode("overwrite").parquet(str(path))
            self._states[name] = self.session.read.schema(_SHAPES[name]).parquet(str(path))
            shutil.rmtree(self.folder / "state" / name / str(batch - 2), ignore_errors=True)
            self.kept += sum(pq.read_metadata(part).num_rows for part in path.glob("*.parquet"))

    def _alarm(self, row: Any, batch: int) -> None:  # noqa: ANN401 - a row of Spark's
        self.alarms += 1
        if self.alarms <= ALARMS_TOLD_MAX:
            entry = ENTRIES[row.check]
            self.say({
                "what": "alarm", "check": row.check, "title": entry.title,
                "severity": entry.severity, "key": row.key, "explain": row.explain,
                "t": row.t, "batch": batch,
                "excusable": entry.excusable and self.feed.may_lose,
            })  # fmt: skip

    def _line(self, batch: int, rows: int, doubt: Any) -> Line:  # noqa: ANN401 - a row of Spark's
        return {
            "what": "batch", "batch": batch, "rows": rows, "kept": self.kept,
            "unseen": doubt.unseen, "suspects": doubt.suspects, "alarms": self.alarms,
            "complete": self.marks.complete,
        }  # fmt: skip


def watch(
    session: SparkSession, run: Path, say: Say, stop: Stop, folder: Path | None = None
) -> Stream:
    """Watch ``run`` until nothing more is recorded or ``stop`` says so; return what was seen.

    ``folder``: where the watch lies, by default in the run. Errors: those of `Feed` and of Spark.
    """
    stream = Stream.of(session, run, say, folder)
    query, feed, pause = stream.start(), stream.feed, threading.Event()
    try:
        while query.isActive and stream.failure is None and not stop.by:
            is_last = stream.life is not Life.GOES_ON and not feed.is_behind
            if is_last and stream.taken == feed.landed:
                break
            if not is_last and feed.landed - stream.taken < AHEAD_MAX:
                stream.life = life_of(run)  # before the look: then what is read is all there is
                feed.look()
                if feed.is_behind:
                    continue
            pause.wait(LOOK_EVERY_S)
        if stream.failure is not None:
            raise stream.failure
        if (error := query.exception()) is not None:
            raise error
    finally:
        if stop.by:  # Spark would trace each task that the end cuts short
            session.sparkContext.setLogLevel("OFF")
        query.stop()
    say({
        "what": "end", "whole": stream.whole, "rows": stream.rows, "alarms": stream.alarms,
        "why": "interrupted" if stop.by else stream.life.value,
    })  # fmt: skip
    return stream


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch a run and return the exit code."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False, markup=False, emoji=False)
    stop = Stop()
    try:
        with taken(options.run) as folder, (folder / ALARMS_FILE).open("w") as file:
            if folder != options.run / FOLDER:
                _name(folder, options.run)
            say = teller(file, console, as_json=options.json)
            stream = _watch(options.run, folder, say, stop)
    except CannotWatchError as error:
        return _fail(console, str(error), EXIT_USAGE)
    except KeyboardInterrupt:  # before the stream began, or a second one
        return EXIT_INTERRUPTED
    except JvmNotFoundError as error:
        return _fail(console, str(error), EXIT_HARNESS)
    except OSError as error:
        return _fail(console, f"{options.run / FOLDER} cannot be used: {error}", EXIT_HARNESS)
    except Exception as error:  # noqa: BLE001 - exit code 255 says that the watch failed
        return _fail(console, describe_error(error), EXIT_HARNESS)
    if stop.by:
        return EXIT_INTERRUPTED if stop.by == signal.SIGINT else EXIT_TERMINATED
    if stream.alarms:
        return EXIT_INVALID
    return EXIT_VALID if stream.whole else EXIT_UNKNOWN


def _watch(run: Path, folder: Path, say: Say, stop: Stop) -> Stream:
    with (
        open_session("local[2]", partitions=2, driver_memory=MEMORY, quick=True) as session,
        _stopped_by_signals(stop),
    ):
        return watch(session, run, say, stop, folder)


def _name(folder: Path, run: Path) -> None:
    """Say where the watch of a run lies that may only be read; not among lines of JSON."""
    told = folder / ALARMS_FILE
    sys.stderr.write(f"chaos watch: {run} cannot be written; what the watch tells: {told}\n")


@contextmanager
def _stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM ask for the end; a second SIGINT does not wait for it."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.by = number
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    about = "Show what a run that goes on already shows: alarms, and what is not delivered yet."
    made = _Parser(prog="ledgermq chaos watch", description=about)
    made.add_argument("run", type=Path, help="the directory of a run that goes on, or is over")
    made.add_argument("--json", action="store_true", help="a line of JSON for all that is told")
    return made


def _fail(console: Console, text: str, code: int) -> int:
    console.print(f"chaos watch: {text}", markup=False, soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
