"""What Spark did, from its event log: windows, broadcasts, and how much came to one task.

The log has the plans as they were executed, and counts of what they moved: nothing is guessed from
the code of the checks.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_EXECUTION = "org.apache.spark.sql.execution.ui.SparkListener"
_SPEC = "windowspecdefinition("
_ORDERED = re.compile(r"specifiedwindowframe|[^,]* (?:ASC|DESC) ")


def logging_to(directory: Path) -> dict[str, str]:
    """Return the settings of a session that writes its event log; no broadcast is Spark's idea."""
    directory.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.maxPlanStringLength": "1000000",
        "spark.sql.debug.maxToStringFields": "1000",
    }


class EventLog:
    """The events of sessions that have ended."""

    def __init__(self, directory: Path) -> None:
        files = [path for path in directory.iterdir() if path.is_file()]
        self.events = [json.loads(line) for file in files for line in file.open()]

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Yield every node of every plan that was executed."""
        for event in self.events:
            if event["Event"] == f"{_EXECUTION}SQLExecutionStart":
                todo = [event["sparkPlanInfo"]]
                while todo:
                    node = todo.pop()
                    todo += node["children"]
                    yield node

    def windows(self) -> list[str]:
        """Return the windows, in Spark's words."""
        return [n["simpleString"] for n in self.nodes() if n["nodeName"].startswith("Window")]

    def unpartitioned(self) -> list[str]:
        """Return the windows that are over all rows at once: what is named first orders them."""
        specs = [(words, spec) for words in self.windows() for spec in words.split(_SPEC)[1:]]
        return [words for words, spec in specs if _ORDERED.match(spec)]

    def quadratic(self) -> list[str]:
        """Return the windows that fold each row with all that lie behind it, and no more."""
        ends = [words for words in self.windows() if "unboundedfollowing" in words.lower()]
        return [words for words in ends if "unboundedpreceding" not in words.lower()]

    def broadcast_rows(self) -> int:
        """Return how many rows the largest broadcast had."""
        names = {
            metric["accumulatorId"]
            for node in self.nodes()
            if node["nodeName"] == "BroadcastExchange"
            for metric in node["metrics"]
            if metric["name"] == "number of output rows"
        }
        return max(
            value
            for event in self.events
            if event["Event"] == f"{_EXECUTION}DriverAccumUpdates"
            for number, value in event["accumUpdates"]
            if number in names
        )

    def most_of_a_task(self) -> int:
        """Return how many shuffled records the task read that read most."""
        return max(
            event["Task Metrics"]["Shuffle Read Metrics"]["Total Records Read"]
            for event in self.events
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics")
        )
