"""``python -m spark.stream.watch RUN``: what a run that goes on already shows, as a stream.

Recordings are landed as files (`spark.stream.feed`), Structured Streaming reads them, and each
batch is laid over what is kept of earlier ones (`spark.stream.memory`). Alarms go to the terminal
and to ``RUN/watch/alarms.jsonl`` as they are found. It ends with the run, or with Ctrl-C.

Exit codes: 0 no alarm, 1 an alarm, 254 usage, 255 the watch itself failed. Source: docs/chaos.md.
"""

import argparse
import json
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.text import Text

from chaos.catalogue.checks import CHECKS as ENTRIES
from spark.history import few_rows
from spark.job import describe_error
from spark.result import EXIT_HARNESS, EXIT_USAGE
from spark.session import JvmNotFoundError, open_session
from spark.stream import memory
from spark.stream.feed import LANDING, SCHEMA, Feed
from spark.stream.memory import Marks
from spark.stream.replicas import Replicas

FOLDER: Final = "watch"
ALARMS_FILE: Final = "alarms.jsonl"
END_FILE: Final = "end"
"""Whoever runs the clients writes it when all is recorded."""
LOOK_EVERY_S: Final = 0.5
MEMORY: Final = "1g"
EXIT_ALARM: Final = 1
ALARMS_TOLD_MAX: Final = 10_000
"""More alarms are counted, not written: by then nobody reads them."""
_SHAPES: Final = {
    "messages": memory.MESSAGES,
    "places": memory.PLACES,
}
SETTINGS: Final = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.shuffle.partitions": "1",
    # Each batch has other numbers in its plans: to compile them takes longer than to run them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of the session: batches are small, and they come every second."""
Line = dict[str, Any]
Say = Callable[[Line], None]


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
    batches: int = 0
    kept: int = 0
    """Rows of messages and places that are kept now."""
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _states: dict[str, DataFrame] = field(default_factory=dict)
    _replicas: Replicas = field(default_factory=Replicas)
    _floors: dict[int, int] = field(default_factory=dict)
    """By producer, the highest number that was forgotten."""

    @classmethod
    def of(cls, session: SparkSession, run: Path, say: Say) -> Self:
        """Return the stream of a run; what an earlier watch kept of it is removed."""
        folder = run / FOLDER
        for name in (LANDING, "state", "checkpoint"):
            shutil.rmtree(folder / name, ignore_errors=True)
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

    def take(self, facts: DataFrame, batch: int) -> None:
        """Lay a batch over what is kept, tell its alarms, and keep what comes of it."""
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
        }
        floors = few_rows(self.session, list(self._floors.items()), memory.FLOORS)
        of_messages = memory.message_alarms(folded["messages"], floors, self.marks)
        found = of_messages.unionByName(memory.place_alarms(folded["places"]))
        new = found.limit(ALARMS_TOLD_MAX).collect()
        heard = self._replicas.hear(of_what["probe"], forget=self.feed.nodes_forget)
        for alarm in (*new, *heard):
            self._alarm(alarm, batch)
        doubt = memory.suspects(folded["messages"], self.marks).first()
        assert doubt is not None, "an aggregate of no rows is a row"
        if doubt.oldest < self.marks.latest - memory.KEPT_NS:
            for row in memory.forgotten(folded["messages"], self.marks).collect():
                self._floors[row.pid] = max(row.seq, self._floors.get(row.pid, row.seq))
        self._keep(self._remembered(folded, new), batch)
        self.batches = batch + 1
        self.say(self._line(batch, counted, doubt))
        for rows in (facts, *folded.values()):
            rows.unpersist()

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
        place = F.concat_ws("", "topic", F.lit("/"), "queue_id", F.lit("@"), "queue_offset")
        keys = {"messages": F.col("msg_key").cast("string"), "places": place}
        out = dict(folded)
        if new:
            told = [(row.check, row.key) for row in new]
            alarms = few_rows(self.session, told, "check string, key string")
            out = {name: memory.told(folded[name], alarms, key) for name, key in keys.items()}
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
            })  # fmt: skip

    def _line(self, batch: int, rows: int, doubt: Any) -> Line:  # noqa: ANN401 - a row of Spark's
        return {
            "what": "batch", "batch": batch, "rows": rows, "kept": self.kept,
            "unseen": doubt.unseen, "suspects": doubt.suspects, "alarms": self.alarms,
            "complete": self.marks.complete,
        }  # fmt: skip


def watch(session: SparkSession, run: Path, say: Say, stop: threading.Event) -> Stream:
    """Watch ``run`` until it ends or ``stop`` is set; return what was seen.

    Errors: those of `Feed` and of Spark.
    """
    stream = Stream.of(session, run, say)
    query, feed = stream.start(), stream.feed
    try:
        while query.isActive and not stop.is_set():
            ended = has_ended(run)  # looked at first: then what is read is all there is
            feed.look()
            if ended and not feed.is_behind:
                query.processAllAvailable()
                break
            if not feed.is_behind:
                stop.wait(LOOK_EVERY_S)
        if (error := query.exception()) is not None:
            raise error
    finally:
        query.stop()
    whole = has_ended(run) and stream.rows == feed.rows
    say({"what": "end", "whole": whole, "rows": stream.rows, "alarms": stream.alarms})
    return stream


def has_ended(run: Path) -> bool:
    """Whether nothing more will be recorded of a run."""
    return (run / FOLDER / END_FILE).exists() or (run / "tables").is_dir()


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch a run and return the exit code."""
    parser = argparse.ArgumentParser(prog="ledgermq chaos watch", description=__doc__)
    parser.add_argument("run", type=Path, help="the directory of a run that goes on, or is over")
    parser.add_argument("--json", action="store_true", help="a line of JSON for all that is told")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    if not (options.run / "run.json").is_file() or not (options.run / "raw").is_dir():
        console.print(f"{options.run} is no run of ours: it has no run.json and raw/", markup=False)
        return EXIT_USAGE
    path = options.run / FOLDER / ALARMS_FILE
    path.parent.mkdir(exist_ok=True)
    stop = threading.Event()
    try:
        with path.open("w") as file:
            say = teller(file.write, file.flush, console, as_json=options.json)
            with open_session(
                "local[2]", partitions=2, driver_memory=MEMORY, quick=True
            ) as session:
                stream = watch(session, options.run, say, stop)
    except KeyboardInterrupt:
        return 130
    except JvmNotFoundError as error:
        console.print(f"chaos watch: {error}", markup=False)
        return EXIT_HARNESS
    except Exception as error:  # noqa: BLE001 - exit code 255 says that the watch failed
        console.print(f"chaos watch: {describe_error(error)}", markup=False)
        return EXIT_HARNESS
    return EXIT_ALARM if stream.alarms else 0


def teller(
    write: Callable[[str], Any], flush: Callable[[], Any], console: Console, *, as_json: bool
) -> Say:
    """Return what writes each line to the file, and shows it on the console."""

    def say(line: Line) -> None:
        text = json.dumps(line)
        write(text + "\n")
        flush()
        if as_json:
            console.file.write(text + "\n")
            console.file.flush()
        else:
            console.print(in_words(line), soft_wrap=True)

    return say


def in_words(line: Line) -> Text:
    """Return a line as a person reads it."""
    match line["what"]:
        case "alarm":
            style = "bold red" if line["severity"] == "CRIT" else "red"
            words = f"ALARM {line['check']} {line['title']} ({line['severity']}): {line['explain']}"
            return Text(words, style=style)
        case "batch":
            return Text(
                f"batch {line['batch']:>4}  {line['rows']:>6} facts  {line['kept']:>7} kept  "
                f"{line['unseen']:>6} not delivered yet, {line['suspects']} of them suspect  "
                f"{line['alarms']} alarms",
                style="cyan" if not line["alarms"] else "yellow",
            )
    seen = "all of the run was seen" if line["whole"] else "it ended before the run did"
    return Text(f"end  {line['rows']} facts, {line['alarms']} alarms; {seen}")


if __name__ == "__main__":
    sys.exit(main())
