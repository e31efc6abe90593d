"""PySyncObj in virtual time: its clock, its chance and its files are those of a simulated machine.

The controllers' Raft (`namesrv.controller.raft`) has no thread and no socket of the library: it is
ticked by the loop, and its messages go over links of ours. What is left is exchanged here, while a
run lasts: the time and the chance of its elections; the snapshot that it opens by path; and the
order in which it goes through its peers, which would follow the hashes of their names.
Source: pysyncobj 0.3.17, syncobj.py and serializer.py.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pysyncobj.serializer
import pysyncobj.syncobj
from pysyncobj.node import Node

import namesrv.controller.raft
from namesrv.controller.machine import Machine
from namesrv.controller.raft import _Wire
from sim.context import CURRENT
from sim.disk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from namesrv.controller.commands import Command, Outcome
    from sim.context import Host

NS: Final = 1_000_000_000


def _host() -> Host:
    process = CURRENT.get()
    assert process is not None, "the library runs outside of all processes"
    return process.host


def _disk() -> SimDisk:
    disk = _host().disk
    assert isinstance(disk, SimDisk), disk
    return disk


def _now_s() -> float:
    return _host().clock.monotonic_ns() / NS


def _chance() -> float:
    """Return the next number below 1 of this machine's own stream for the library."""
    host = _host()
    stream = _STREAMS.get(host)
    if stream is None:
        stream = _STREAMS[host] = host.rng.split("pysyncobj").random
    return stream()


_STREAMS: dict[Host, Callable[[], float]] = {}


class _Written(io.BytesIO):
    """A file that is on the disk when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        """Keep it."""
        if not self.closed:
            _disk().replace(self._path, self.getvalue())
        super().close()


def _open(path: str, mode: str) -> io.BytesIO:
    if "w" in mode:
        return _Written(path)
    data = _disk().read(path)
    if data is None:
        raise FileNotFoundError(path)
    return io.BytesIO(data)


def _rename(source: str, target: str) -> None:
    _disk().replace(target, _disk().read(source) or b"")
    _disk().remove(source)


def _is_file(path: str) -> bool:
    return _disk().size(path) is not None


def _hash(node: Node) -> int:
    return zlib.crc32(str(node.id).encode())


@contextlib.contextmanager
def in_virtual_time(
    on_applied: Callable[[str, Machine, Command, Outcome], None],
    on_said: Callable[[Host, str, dict[str, Any]], None],
) -> Iterator[None]:
    """Have the library belong to simulated machines while the block runs.

    Args:
        on_applied: hears of each command that a controller applies, after it has.
        on_said: hears of each message of the library to a peer, before it goes.
    """

    class Heard(Machine):
        """The machine of a controller, heard."""

        def apply(self, command: Command) -> Outcome:
            """See `Machine`."""
            outcome = super().apply(command)
            on_applied(_host().name, self, command, outcome)
            return outcome

    class HeardWire(_Wire):
        """What the library says to the other controllers, heard."""

        def send(self, node: Node, message: dict[str, Any]) -> bool:
            """See `_Wire`."""
            on_said(_host(), str(node.id), message)
            return super().send(node, message)

    syncobj, serializer = pysyncobj.syncobj, pysyncobj.serializer
    changes: list[tuple[Any, str, Any]] = [
        (syncobj, "monotonicTime", _now_s),
        (syncobj, "random", SimpleNamespace(random=_chance)),
        (syncobj, "os", SimpleNamespace(path=SimpleNamespace(isfile=_is_file))),
        (serializer, "open", _open),
        (serializer, "atomicReplace", _rename),
        (Node, "__hash__", _hash),
        (namesrv.controller.raft, "Machine", Heard),
        (namesrv.controller.raft, "_Wire", HeardWire),
    ]
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in changes]
    _STREAMS.clear()
    for owner, name, new in changes:
        setattr(owner, name, new)
    try:
        yield
    finally:
        _STREAMS.clear()
        for owner, name, old in before:
            if old is None:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
