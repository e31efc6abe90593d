"""Starts Jepsen's checkers over a folder of histories, in one JVM."""

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.jepsen.mapping import Theirs, read_theirs

CLASSPATH: Final = "JEPSEN_CLASSPATH"
CHECK: Final = Path(__file__).with_name("check.clj")


def judge_all(folder: Path) -> dict[str, Theirs]:
    """Return what Jepsen found in each history of a folder, by file.

    Skips the test that asks where the variable names no class path with Jepsen on it.
    """
    if not os.environ.get(CLASSPATH):
        pytest.skip(f"Jepsen's own checkers skipped: {CLASSPATH} is not set (docs/checking.md)")
    out = folder / "found"
    command = ["java", "-Xmx900m", "-cp", os.environ[CLASSPATH], "clojure.main", str(CHECK)]
    done = subprocess.run(
        [*command, str(folder), str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return read_theirs(out.read_text().splitlines())
