"""Planted bugs of the name server: what it believes, and what it remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mutants.planting import Mutant

NAMESRV: Final[tuple[Mutant, ...]] = ()
