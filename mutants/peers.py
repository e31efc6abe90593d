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
)
"""Those that tests find."""
