"""Becomes another program that dies when its parent does.

Usage: ``die_with_parent.py PARENT_PID PROGRAM ARGS...``.

A harness that is killed leaves no brokers behind, because the kernel kills them (also frozen ones).
Run as a file, with nothing of the project imported. Source: prctl(2), PR_SET_PDEATHSIG.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent and become the program."""
    parent = int(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the request was made
        raise SystemExit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - becoming that program is the purpose


if __name__ == "__main__":
    main()
