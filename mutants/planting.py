"""How a bug is planted, and pulled out again: functions of loaded modules are exchanged.

A planted bug is best read as a patch: this text of this function becomes that. `Patch` does just
that to the source of one function and compiles it in the function's own module, so that a mutant
is as small as the mistake, and is refused when the code it was written for has changed.

It knows nothing of what the functions do.
"""

from __future__ import annotations
import __future__

import contextlib
import importlib
import inspect
import linecache
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRODUCT: Final = ("ledgermq", "dledger", "store", "broker", "namesrv")
"""Packages whose modules may hold a patched function under a name of their own."""

LIBRARY: Final = "ledgermq.client"
NAME_SERVER: Final = "namesrv."
OF_CLIENT: Final = "client-"
"""Such names are of bugs planted in clients alone, also where brokers have the code."""

_undo: Final[list[tuple[Any, str, Any]]] = []


class StaleMutantError(Exception):
    """The code that a mutant patches is not there (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug."""

    name: str
    breaks: str
    """What it does wrong, in one sentence."""
    source: str
    """The rule it breaks, and who had this bug."""
    plant: Callable[[], None]
    needs: str = ""
    """Kinds of faults of the simulator, one of which it takes to show the bug; empty for any."""
    flush: str = ""
    """The flush mode in which alone it is a bug; empty for both."""

    def __call__(self) -> None:
        """Plant it in this process."""
        self.plant()


@dataclass(frozen=True, slots=True)
class Patch:
    """``target`` is ``module:function`` or ``module:Class.method``; ``changes`` are (old, new)."""

    target: str
    changes: tuple[tuple[str, str], ...]

    def __call__(self) -> None:
        """Apply it. Errors: `StaleMutantError` unless each old text is there exactly once."""
        module_name, _, path = self.target.partition(":")
        owner: Any = importlib.import_module(module_name)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        function = getattr(owner, name, None)
        if function is None:
            raise StaleMutantError(f"{self.target} does not exist")
        text = textwrap.dedent(inspect.getsource(function))
        for old, new in self.changes:
            if text.count(old) != 1:
                raise StaleMutantError(
                    f"{self.target} has this text {text.count(old)} times: {old!r}"
                )
            text = text.replace(old, new)
        replace(owner, name, _compile(text, f"<mutant of {self.target}>", function, name))


def patch(target: str, *changes: tuple[str, str]) -> Patch:
    """Return the patch of one function."""
    return Patch(target, changes)


@dataclass(frozen=True, slots=True)
class Patches:
    """Several patches: one bug may take two places."""

    parts: tuple[Callable[[], None], ...]

    def __call__(self) -> None:
        """Apply them in order."""
        for part in self.parts:
            part()


def patches(*parts: Callable[[], None]) -> Patches:
    """Return what applies several patches."""
    return Patches(parts)


def targets_of(mutant: Mutant) -> list[str]:
    """Return the functions that a planted bug changes; empty where it is no patch of text."""
    parts = mutant.plant.parts if isinstance(mutant.plant, Patches) else (mutant.plant,)
    return [part.target for part in parts if isinstance(part, Patch)]


def is_of_name_servers(mutant: Mutant) -> bool:
    """Tell whether name servers of a run execute the bug, and nobody else."""
    targets = targets_of(mutant)
    return bool(targets) and all(target.startswith(NAME_SERVER) for target in targets)


def is_of_clients(mutant: Mutant) -> bool:
    """Tell whether clients of a run execute the bug; otherwise brokers do."""
    targets = targets_of(mutant)
    in_library = bool(targets) and all(target.startswith(LIBRARY) for target in targets)
    return in_library or mutant.name.startswith(OF_CLIENT)


def replace(owner: Any, name: str, new: Any) -> None:  # noqa: ANN401  # modules, classes, functions
    """Put ``new`` in the place of ``owner.name``, and wherever the product imported it by name."""
    old = getattr(owner, name)
    places = [(owner, name)]
    for module_name, module in sorted(sys.modules.copy().items()):
        if module is not owner and module_name.partition(".")[0] in PRODUCT:
            places += [(module, key) for key, value in vars(module).items() if value is old]
    for place, key in places:
        _undo.append((place, key, old))
        setattr(place, key, new)


def uproot() -> None:
    """Put everything back as it was."""
    while _undo:
        place, name, old = _undo.pop()
        setattr(place, name, old)


@contextlib.contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Have the bug planted while the block runs."""
    mutant()
    try:
        yield
    finally:
        uproot()


def _compile(text: str, filename: str, function: Any, name: str) -> Any:  # noqa: ANN401  # a function
    """Compile a changed function in the globals of the one it replaces."""
    flags = __future__.annotations.compiler_flag
    code = compile(text, filename, "exec", flags=flags, dont_inherit=True)
    scope: dict[str, Any] = {}
    exec(code, function.__globals__, scope)  # noqa: S102  # our own source, changed as written here
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return scope[name]
