"""Planted bugs about who may say what: signatures, identities, and what cannot be true."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

PEERS: Final = (
    Mutant(
        name="nonce-not-checked",
        breaks="A signed request counts again when it is sent again.",
        source="Replay of an administrative request within its time.",
        plant=patch(
            "ledgermq.remoting.protocol.signing:Nonces.use",
            ("if nonce in until_ms or nonce in self._ahead_ms:", "if False:"),
        ),
    ),
    Mutant(
        name="nonce-forgotten-as-the-clock-falls",
        breaks="Where a clock is put back, what was signed before counts again, once the time of"
        " that has come again.",
        source="Replay of an administrative request that was heard before the clock was put back.",
        plant=patch(
            "ledgermq.remoting.protocol.signing:Nonces.use",
            ("self._ahead_ms |= until_ms", "pass"),
        ),
    ),
    Mutant(
        name="signature-not-required",
        breaks="Membership, hand-over and compaction are done for everybody who asks.",
        source="The settings have a key, and the broker does not ask for it.",
        plant=patch(
            "broker.cluster.guard:Guard.protect",
            ("if problem is None:", "if True:"),
        ),
    ),
    Mutant(
        name="sender-not-compared",
        breaks="A message counts whoever has proven to be at the other end of the connection.",
        source="Authentication of connections without authorization of what is said on them.",
        plant=patch(
            "dledger.peers.inbound:Inbound._take",
            ("elif message.sender != self.sender:", "elif False:"),
        ),
    ),
    Mutant(
        name="seal-without-number",
        breaks="A sealed frame between members counts again when it is repeated.",
        source="A seal over the content alone.",
        plant=patches(
            patch(
                "dledger.codec.handshake:Sealer.seal", ("self._number += 1", "self._number += 0")
            ),
            patch(
                "dledger.codec.handshake:Opener.open", ("self._number += 1", "self._number += 0")
            ),
        ),
    ),
    Mutant(
        name="term-jump-accepted",
        breaks="A message may name any term, and it is entered and written down.",
        source="One forged message makes a group exit at every election from then on.",
        plant=patch(
            "dledger.core.raft:Raft.step",
            ("if flaw is not None:", "if flaw is not None and flaw != 'term':"),
        ),
    ),
    Mutant(
        name="snapshot-installed-unverified",
        breaks="A snapshot takes the place of the log whatever is in it, if its CRC is right.",
        source="A forged snapshot of 185 bytes emptied three logs.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles._verified",
            ("if problem:", "if False:"),
        ),
    ),
    Mutant(
        name="former-member-heard",
        breaks="A member that was removed goes on to be heard: it deposes leaders at will.",
        source="A certificate counts until it expires, whatever the log says of its owner.",
        plant=patch(
            "dledger.core.configuration:Membership.is_shut_out",
            ("if node_id not in committed.configuration.former:", "if True:"),
        ),
    ),
    Mutant(
        name="lapsed-proof-kept",
        breaks="A connection goes on for ever whose certificate has expired, or whose key is gone.",
        source="TLS looks at a certificate when a connection begins, and never again.",
        plant=patches(
            patch(
                "dledger.peers.inbound:Inbound.check", ("if self.sender is not None:", "if False:")
            ),
            patch("dledger.peers.link:Link.check", ("if self._transport is not None", "if False")),
        ),
    ),
    Mutant(
        name="former-member-administers",
        breaks="A member that was removed changes the group: it adds itself again.",
        source="Who may administer is read from the certificate alone.",
        plant=patch(
            "broker.cluster.guard:Guard._may_administer", ("and not self._is_shut_out(node_id)", "")
        ),
    ),
    Mutant(
        name="nobody-vouches",
        breaks="A member that was away stays deaf to one that was removed and added again.",
        source="Who is behind learns from the leader alone, and does not hear this one.",
        plant=patch(
            "dledger.core.configuration:Membership.is_shut_out",
            ("if self._vouched is not None:", "if False:"),
        ),
    ),
    Mutant(
        name="repair-adopts-unverified",
        breaks="A snapshot that replaces damaged entries counts if its CRC is right.",
        source="Two ways to take a snapshot of a peer, and one of them checked.",
        plant=patch(
            "dledger.trimming:Trimmer._save_verified",
            ("if meta is not None and meta.position != (begins_at or meta.position):", "if False:"),
            ("elif meta is not None:", "else:"),
        ),
    ),
    Mutant(
        name="majority-clock-ignored",
        breaks="A member that starts with a wrong clock stamps by it, whatever others say.",
        source="Each member believes its own clock alone.",
        plant=patch(
            "dledger.peers.clocks:Clocks.correction_ms", ("if len(apart) >= quorum:", "if False:")
        ),
    ),
    Mutant(
        name="one-clock-overrules",
        breaks="One member with a wrong clock makes the stamps of the others wrong.",
        source="An average, or the highest, of all clocks.",
        plant=patch(
            "dledger.peers.clocks:Clocks.correction_ms",
            ("quorum = majority(len(voters))", "quorum = 1"),
            ("if near and near + (self._state.node_id in voters) >= quorum:", "if near > 1:"),
        ),
    ),
    Mutant(
        name="poisoned-stamps-stay",
        breaks="One message stamped years ahead stamps all that follow, until clocks catch up.",
        source="Stamps that may never fall, whatever made them rise.",
        plant=patch(
            "store.write.stamps:Stamps._compare", ("if self.last > wall_ms + HEAL_MS:", "if False:")
        ),
    ),
    Mutant(
        name="poisoned-segment-stays",
        breaks="A segment that a wrong clock closed keeps all behind it from being dropped by age.",
        source="The age of a segment read from one message.",
        plant=patch(
            "broker.retention_policy:_closing_times",
            ("if closed_ms <= now_ms or behind_ms is None:", "if True:"),
        ),
    ),
)
"""Those that tests find."""
