"""How a person calls the ``ledgermq`` command from where they are, for hints that can be pasted.

Knows the environment that runs it and the current directory; no command.
"""

import os
import shutil
import sys
from pathlib import Path

COMMAND = "ledgermq"


def program() -> str:
    """Return what to type for ``ledgermq``: by name if the path finds ours, else by its place."""
    ours = Path(sys.executable).with_name(COMMAND)
    found = shutil.which(COMMAND)
    if found is not None and os.path.realpath(found) == os.path.realpath(ours):
        return COMMAND
    if not ours.exists():
        return f"{sys.executable} -P -m cli"
    here = Path.cwd()
    return str(ours.relative_to(here) if ours.is_relative_to(here) else ours)


def has_target(name: str) -> bool:
    """Return whether ``make NAME`` means ours here: the current directory is a checkout."""
    makefile = Path("Makefile")
    if not (makefile.is_file() and Path("scripts", "setup.sh").is_file()):
        return False
    return any(line.startswith(f"{name}:") for line in makefile.read_text().splitlines())
