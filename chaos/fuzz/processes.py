"""What the fuzzer watches from outside: memory, ends and log lines of the servers' processes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_RSS: Final = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
_BAD: Final = re.compile(r"Traceback|event=handler_failed|event=task_failed|event=fatal|CRITICAL")
LINES_MAX: Final = 40


def rss_anon_kib(pid: int) -> int:
    """Return the private memory of a process in KiB, 0 if it is gone."""
    try:
        found = _RSS.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def bad_lines(logs: Mapping[str, Path]) -> list[str]:
    """Return the lines of logs that no request of anybody may cause, with their number."""
    found: list[str] = []
    for name, path in logs.items():
        with path.open(errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if _BAD.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:300]}")
                    if len(found) >= LINES_MAX:
                        return found
    return found
