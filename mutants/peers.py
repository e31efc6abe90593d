"""Planted bugs about who may say what: signatures, identities, and what cannot be true."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

PEERS: Final = (
    Mutant(
        name="nonce-not-checked",
        breaks="A signed request counts again when it is sent again.",
        source="Replay of an administrative request within its time.",
        plant=patch(
            "remoting.protocol.signing:Nonces.use",
            ("if nonce in until_ms:", "if False:"),
        ),
    ),
    Mutant(
        name="signature-not-required",
        breaks="Membership, hand-over and compaction are done for everybody who asks.",
        source="The settings have a key, and the broker does not ask for it.",
        plant=patch(
            "broker.guard:Guard.protect",
            ("if problem is None:", "if True:"),
        ),
    ),
)
"""Those that tests find."""
