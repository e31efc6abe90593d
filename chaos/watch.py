"""The watch beside a run: the stream as a process, its alarms as they come, and whether they held.

The stream (``spark.stream.watch``) reads what the run records and appends a line to
``RUN/watch/alarms.jsonl`` for each alarm. A `Watch` follows that file, shows the alarms, and tells
whoever waits of the first that is grave enough to end the run. Afterwards `differences` holds them
against the verdict of the whole run. Knows nothing of Spark.

Source: docs/chaos.md, "While it runs".
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pyarrow.parquet as pq

from chaos.backends.process import environment, python
from chaos.catalogue.kinds import CRIT, MAJOR
from chaos.catalogue.live import WHOLLY
from ledgermq.runtime.cancel import timeout

MODULE: Final = "spark.stream.watch"
FOLDER: Final = "watch"
FOLLOW_EVERY_S: Final = 0.25
ALARMS_FILE: Final = "alarms.jsonl"
SHOWN_MAX: Final = 5
"""So many alarms of a check are shown; all are in the file."""
SEEN: Final = frozenset({0, 1})
"""Exit codes of a stream that saw all of a run."""
END_LIMIT_S: Final = 180.0
"""How long the stream may take to come to the end of a small record."""
BYTES_PER_S: Final = 100_000
"""So much more of a large one it reads each second, at the least."""
GRAVE: Final[Mapping[str, tuple[str, ...]]] = {"critical": (CRIT,), "major": (CRIT, MAJOR)}
"""What ends a run early, by the word of ``--stop-on``."""
ALSO: Final[Mapping[str, tuple[str, ...]]] = {"A54": ("A53",)}
"""What else an alarm may turn out to be: a transaction that was undecided is rolled back."""
Line = dict[str, Any]


class Watch:
    """A stream over a run. Use `start`, then `end` when all is recorded; `kill` at any time."""

    def __init__(self, run: Path, notice: Callable[[str], None], stop_on: str | None) -> None:
        self.grave = asyncio.Event()
        """Set by the first alarm that is to end the run."""
        self._run = run
        self._notice = notice
        self._severities = GRAVE[stop_on] if stop_on else ()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._read = 0
        self._told: Counter[str] = Counter()

    async def start(self) -> Self:
        """Start the stream. Errors: OSError."""
        (self._run / "logs").mkdir(exist_ok=True)
        log = (self._run / "logs" / "watch.log").open("wb")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                *python("-m", MODULE, str(self._run), "--json"),
                stdout=log,
                stderr=log,
                env=environment(),
            )
        self._task = asyncio.create_task(self._follow())
        return self

    async def end(self) -> str | None:
        """Say that all is recorded, and wait for the stream; return what went wrong, or None."""
        assert self._process is not None
        folder = self._run / FOLDER
        limit_s = end_limit_s(self._run)
        try:
            folder.mkdir(exist_ok=True)
            (folder / "end").touch()
            async with timeout(limit_s):
                code = await self._process.wait()
        except TimeoutError:
            await self.kill()
            return f"the watch did not come to the end of the record in {limit_s:.0f} s"
        except OSError as error:
            await self.kill()
            return f"the watch could not be told of the end: {error}"
        except BaseException:
            await self.kill()
            raise
        await self._rest()
        return None if code in SEEN else _failed(code)

    async def kill(self) -> None:
        """End the stream, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._rest()

    async def _rest(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            self._look()

    async def _follow(self) -> None:
        assert self._process is not None
        while True:
            self._look()
            code = self._process.returncode
            if code is not None:
                if code not in SEEN:
                    self._notice(_failed(code))
                return
            await asyncio.sleep(FOLLOW_EVERY_S)

    def _look(self) -> None:
        for line in self._new_lines():
            if line["what"] == "alarm":
                self._tell(line)
                if line["severity"] in self._severities and not line["excusable"]:
                    self.grave.set()

    def _tell(self, line: Line) -> None:
        """Show an alarm; of very many of a check only the first."""
        check = line["check"]
        self._told[check] += 1
        if self._told[check] <= SHOWN_MAX:
            excused = "; the faults of the plan may excuse it" if line["excusable"] else ""
            self._notice(f"ALARM {check} {line['title']}: {line['explain']}{excused}")
        elif self._told[check] == SHOWN_MAX + 1:
            self._notice(f"more alarms of {check}: {FOLDER}/{ALARMS_FILE}")

    def _new_lines(self) -> Iterator[Line]:
        path = alarms_path(self._run)
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self._read += whole
        yield from (json.loads(line) for line in text[:whole].splitlines())


def end_limit_s(run: Path) -> float:
    """Return how long a stream may take to come to the end of what a run recorded."""
    recorded = sum(path.stat().st_size for path in (run / "raw").glob("*.jsonl"))
    return END_LIMIT_S + recorded / BYTES_PER_S


def alarms_path(run: Path) -> Path:
    """Return where the alarms of a run are."""
    return run / FOLDER / ALARMS_FILE


def differences(run: Path, verdict: Mapping[str, Any]) -> list[str]:
    """Return where a run's alarms and its verdict differ (A48): a line each, none where they agree.

    ``verdict``: ``as_json`` of either checker. Every alarm has to be found by it. What it found of
    checks `WHOLLY` of what is watched must have been an alarm, if all of the run was seen.
    """
    path = alarms_path(run)
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    alarms = {(line["check"], line["key"]) for line in lines if line["what"] == "alarm"}
    whole = any(line["what"] == "end" and line["whole"] for line in lines)
    found = _found(run, verdict)
    return [*_not_found(alarms, found, verdict), *(_not_told(alarms, found) if whole else ())]


def _found(run: Path, verdict: Mapping[str, Any]) -> set[tuple[str, str]] | None:
    """Return what Spark's verdict found, by key; None if there is no such list of all."""
    folder = run / "verdict" / "anomalies"
    if verdict.get("checker") != "spark" or not folder.is_dir():
        return None
    rows = pq.read_table(folder, columns=["anomaly", "key"]).to_pylist()
    return {(row["anomaly"], row["key"]) for row in rows}


def _not_found(
    alarms: Iterable[tuple[str, str]],
    found: set[tuple[str, str]] | None,
    verdict: Mapping[str, Any],
) -> Iterator[str]:
    checks = verdict["checks"]
    for check, key in sorted(alarms):
        names = (check, *ALSO.get(check, ()))
        asked = [checks[name] for name in names if name in checks]
        if not asked or any(one["verdict"] not in {"valid", "invalid"} for one in asked):
            continue  # it was not asked, or cannot be told
        held = any(one.get("count") for one in asked)
        if found is not None:
            held = any((name, key) in found for name in names)
        if not held:
            told = f"alarm {check} of {key} was raised during the run"
            yield f"{told}, and the verdict does not confirm it"


def _not_told(alarms: set[tuple[str, str]], found: set[tuple[str, str]] | None) -> Iterator[str]:
    for check, key in sorted(found or ()):
        if check in WHOLLY and key.isdigit() and (check, key) not in alarms:
            yield f"{check} of {key} was found, and no alarm was told while the run went on"


def _failed(code: int) -> str:
    return f"the watch ended with exit code {code} before all was seen; its log: logs/watch.log"
