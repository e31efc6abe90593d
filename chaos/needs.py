"""The Python packages that only some commands need, and the one line that asks for them.

Looks packages up without importing them. Knows the extras of pyproject.toml by name, no command.
"""

from importlib.util import find_spec
from typing import Final

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "chaos": ("pyarrow", "matplotlib", "numpy"),
    # pyspark 3.5 compares versions with distutils, which Python has given to setuptools.
    "spark": ("pyspark", "pandas", "pyarrow", "distutils"),
}


class MissingExtra(Exception):  # noqa: N818 - it says what is the matter
    """A command needs packages that are not installed; the message says what to install."""


def missing(*extras: str) -> list[str]:
    """Return the modules of these extras that are not installed."""
    modules = dict.fromkeys(module for extra in extras for module in EXTRAS[extra])
    return [module for module in modules if find_spec(module) is None]


def require(*extras: str, instead: str = "") -> None:
    """Raise `MissingExtra` unless every module of ``extras`` is there; ``instead``: a way out."""
    absent = missing(*extras)
    if absent:
        lacking = [extra for extra in extras if missing(extra)]
        raise MissingExtra(_line(absent, lacking) + (f"; or {instead}" if instead else ""))


def explain(error: ModuleNotFoundError) -> str | None:
    """Return what to install for a module that was not found, None if no extra brings it."""
    root = (error.name or "").partition(".")[0]
    extras = [extra for extra, modules in EXTRAS.items() if root in modules]
    return _line([root], extras[:1]) if extras else None


def _line(modules: list[str], extras: list[str]) -> str:
    return f"not installed: {', '.join(modules)}; run: pip install 'ledgermq[{','.join(extras)}]'"
