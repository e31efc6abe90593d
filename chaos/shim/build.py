"""Builds the library that stands between a broker and its disk and clock, where a compiler is."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCES: Final = tuple(Path(__file__).with_name(name) for name in ("faults.c", "unsynced.c"))
COMPILERS: Final = ("cc", "gcc", "clang")
TIMEOUT_S: Final = 60.0


class NotBuilt(Exception):  # noqa: N818 - it says what is the matter
    """There is no library; the message says why and what to install."""


def compiler() -> str | None:
    """Return the compiler that would be used: that of CC, else a usual one; None: there is none."""
    named = os.environ.get("CC", "")
    names = (named.split()[0], *COMPILERS) if named else COMPILERS
    return next((found for name in names if (found := shutil.which(name))), None)


def build(target: Path, sources: Sequence[Path] = SOURCES) -> None:
    """Compile a library into ``target``. Errors: NotBuilt."""
    found = compiler()
    if found is None:
        raise NotBuilt("there is no C compiler (cc, gcc, clang): install one")
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [found, "-shared", "-fPIC", "-O2", "-o", str(target), *map(str, sources), "-ldl"]
    try:
        done = subprocess.run(  # noqa: S603 - a compiler on the path, and our own source
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(f"{found} could not be run: {error}") from error
    if done.returncode != 0:
        raise NotBuilt(f"{found} says: {done.stderr.strip().splitlines()[-1:]}")
