"""The proxy process: one `Link` per directed pair of processes, commanded over a unix socket.

A command is one JSON line ``{"cmd": NAME, "links": [..], ...}``; the answer is one JSON line with
the time and a snapshot of every link's counters, which serves as witness.

======= =========================== ===========================================================
command arguments                   effect
======= =========================== ===========================================================
stats   -                           nothing
cut     links, refuse (bool)        both directions withheld; refuse: connects are refused
oneway  links, direction            one direction withheld
shape   links, rule, direction      the rule of `chaos.net.rules.Rule` holds, both ways by default
flap    links, cut_ms, open_ms      withheld and let go in turn
rst     links                       connections are reset
heal    links                       everything lifted; idempotent
======= =========================== ===========================================================

Run: ``python -m chaos.net.proxy SPEC.json`` with ``{"control": PATH, "seed": N, "links": [{"name",
"host", "port", "listen"}]}``; ``listen`` is a port or 0. It ends when its control connection's file
is removed or it is killed.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from chaos.net.link import DIRECTIONS, Link
from chaos.net.rules import rule_from
from ledgermq.runtime.clock import SystemClock

Command = dict[str, Any]
CONTROL_LINE_BYTES_MAX = 1 << 20


class Proxy:
    """The links and the commands on them."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = {link.name: link for link in links}
        self._clock = SystemClock()
        self._commands: dict[str, Callable[[Link, Command], Awaitable[None]]] = {
            "stats": self._stats,
            "cut": self._cut,
            "oneway": self._oneway,
            "shape": self._shape,
            "flap": self._flap,
            "rst": self._rst,
            "heal": self._heal,
        }

    async def execute(self, command: Command) -> Command:
        """Perform a command and return its answer; a bad one changes nothing."""
        try:
            perform = self._commands[command["cmd"]]
            links = [self.links[name] for name in command.get("links", ())]
            for link in links:
                await perform(link, command)
        except (KeyError, TypeError, ValueError, OSError) as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}
        counters = {name: link.snapshot() for name, link in self.links.items()}
        return {"ok": True, "t_ns": self._clock.monotonic_ns(), "links": counters}

    async def _stats(self, link: Link, command: Command) -> None:
        pass

    async def _cut(self, link: Link, command: Command) -> None:
        if command.get("refuse"):
            await link.refuse()
        link.change("both", withhold=True)

    async def _oneway(self, link: Link, command: Command) -> None:
        direction = command["direction"]
        if direction not in DIRECTIONS:
            raise ValueError(f"direction {direction!r} is not one of {DIRECTIONS}")
        link.change(direction, withhold=True)

    async def _shape(self, link: Link, command: Command) -> None:
        link.shape(command.get("direction", "both"), rule_from(command["rule"]))

    async def _flap(self, link: Link, command: Command) -> None:
        link.flap(float(command["cut_ms"]), float(command["open_ms"]))

    async def _rst(self, link: Link, command: Command) -> None:
        link.reset()

    async def _heal(self, link: Link, command: Command) -> None:
        await link.heal()


async def serve(spec: dict[str, Any]) -> None:
    """Open the links and answer commands until cancelled."""
    links = [
        Link(item["name"], (item["host"], item["port"]), spec.get("seed", 0), item.get("listen", 0))
        for item in spec["links"]
    ]
    for link in links:
        await link.listen()
    proxy = Proxy(links)

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await proxy.execute(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # a broken controller; another one may come
        finally:
            writer.close()

    server = await asyncio.start_unix_server(control, spec["control"], limit=CONTROL_LINE_BYTES_MAX)
    async with server:
        await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the proxy that the file names."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    spec = json.loads(Path(arguments[0]).read_text())
    asyncio.run(serve(spec))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
