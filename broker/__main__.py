"""``python -m broker -c broker.conf [-n NAMESRV] [-p key=value]...``: one broker process."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from broker.server import load_config, run
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.log_format import configure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run; returns the exit code (2 for bad input)."""
    parser = argparse.ArgumentParser(prog="broker", description="Run one LedgerMQ broker.")
    parser.add_argument("-c", "--config", metavar="FILE", help="properties file")
    parser.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT;...", help="name servers; wins over namesrvAddr"
    )
    parser.add_argument(
        "-p",
        "--property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting that wins over the file; may be repeated",
    )
    options = parser.parse_args(argv)
    overrides: dict[str, str] = {}
    for item in options.property:
        name, separator, value = item.partition("=")
        if not separator:
            parser.error(f"-p {item}: KEY=VALUE is expected")
        overrides[name.strip()] = value.strip()
    if options.namesrv:
        overrides["namesrvAddr"] = options.namesrv
    elif "NAMESRV_ADDR" in os.environ:
        overrides.setdefault("namesrvAddr", os.environ["NAMESRV_ADDR"])
    configure_logging()
    try:
        config = load_config(options.config, overrides)
    except FatalError as error:
        logging.getLogger("broker").critical("fatal exit_code=2 %s", error.message)
        return error.exit_code
    return run(config)


if __name__ == "__main__":
    sys.exit(main())
