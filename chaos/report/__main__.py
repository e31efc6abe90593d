"""``python -m chaos.report RUN``: write RUN/report/index.html and print its path."""

import sys
from pathlib import Path

from chaos.report.page import write_report


def main(arguments: list[str]) -> int:
    """Write the report of the run named on the command line. Returns the exit code."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        sys.stderr.write("usage: python -m chaos.report RUN\n")
        return 254
    sys.stdout.write(f"{write_report(Path(arguments[0]))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
