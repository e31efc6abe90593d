"""``python -m namesrv [-c FILE] [-p PORT] [--property KEY=VALUE]...``: one name server."""

import argparse
import logging
import sys
from collections.abc import Sequence

from ledgermq.runtime.config import Properties, bind, load_properties
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.log_format import configure_logging
from namesrv.config import NamesrvConfig
from namesrv.server import run

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, return the exit code."""
    parser = argparse.ArgumentParser(
        prog="namesrv", description="Run a name server: brokers register with it, clients ask it."
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="properties file, RocketMQ's keys")
    parser.add_argument("-p", "--port", metavar="PORT", help="listen on this port (default 9876)")
    parser.add_argument(
        "--property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting that wins over the file; may be repeated",
    )
    parser.add_argument("--log-level", default="INFO", metavar="LEVEL", help="default INFO")
    options = parser.parse_args(argv)
    configure_logging("namesrv", options.log_level.upper())
    try:
        properties = load_properties(options.config) if options.config else Properties()
        overrides = {} if options.port is None else {"listenPort": options.port}
        for item in options.property:
            name, separator, value = item.partition("=")
            if not separator:
                parser.error(f"--property {item}: KEY=VALUE is expected")
            overrides[name.strip()] = value.strip()
        config = bind(NamesrvConfig, properties, overrides)
    except FatalError as error:
        _log.critical("event=fatal exit_code=%d %s", error.exit_code, error.message)
        return error.exit_code
    return run(config)


if __name__ == "__main__":
    sys.exit(main())
