"""Planted bugs behind attacks by hand: names that are dialled, folders, answers without end.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

ATTACKED: Final = (
    Mutant(
        name="name-left-to-the-dial",
        breaks="A dial looks up its name itself, and leaves the lookup behind when it is given up.",
        source="A learner with a host that nobody knows, added and removed: event=uncaught.",
        plant=patch(
            "ledgermq.remoting.transport.dialling:_addresses",
            ("ipaddress.ip_address(host)", "str(host)"),
        ),
    ),
    Mutant(
        name="saves-not-looked-at",
        breaks="What stands where a save writes first is found by the first save, not by a start.",
        source="topics.json.bak as a folder: the broker served for 5 s, and ended.",
        plant=patch(
            "ledgermq.runtime.regular:check_replaced",
            ('in (".tmp", ".bak", ".bak.tmp"):', "in ():"),
        ),
    ),
)
