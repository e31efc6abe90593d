"""Chooses the mode of a broker by its settings. Another mode is another line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.modes.plain import PlainMode
from broker.modes.raft import RaftMode

if TYPE_CHECKING:
    from broker.core import Core
    from broker.modes.mode import Mode


def build_mode(core: Core) -> Mode:
    """Return the parts of a broker that depend on what kind of broker it is."""
    return RaftMode(core) if core.config.enable_dledger else PlainMode(core)
