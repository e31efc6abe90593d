"""How a watch tells what it sees: lines of JSON in a file, and words on a terminal.

Lines: ``alarm``, ``batch`` after each batch of facts, and ``end``. Knows nothing of Spark.
Source: docs/chaos.md, "While it runs".
"""

import json
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

Line = dict[str, Any]
Say = Callable[[Line], None]


def teller(file: TextIO, console: Console, *, as_json: bool) -> Say:
    """Return what writes each line to the file, and shows it on the console. Errors: OSError."""

    def say(line: Line) -> None:
        text = json.dumps(line)
        file.write(text + "\n")
        file.flush()
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
            return Text(f"{alarm_words(line)} ({line['severity']})", style=style)
        case "batch":
            return Text(
                f"batch {line['batch']:>4}  {line['rows']:>6} facts  {line['kept']:>7} kept  "
                f"{line['unseen']:>6} not delivered yet, {line['suspects']} of them suspect  "
                f"{line['alarms']} alarms",
                style="yellow" if line["alarms"] else "cyan",
            )
    seen = "all of the run was seen" if line["whole"] else f"not all was seen: {line['why']}"
    return Text(f"end  {line['rows']} facts, {line['alarms']} alarms; {seen}")


def alarm_words(line: Line) -> str:
    """Return an alarm in words."""
    excused = "; the faults of the plan may excuse it" if line["excusable"] else ""
    return f"ALARM {line['check']} {line['title']}: {line['explain']}{excused}"
