"""Planted bugs about accounts: who is believed, and what they may do."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

ACCESS: Final = (
    Mutant(
        name="halves-told-to-anybody",
        breaks="Whoever says that it is of a producer group gets the halves of it, of topics of"
        " which its account may nothing.",
        source="RocketMQ's PlainAccessValidator looks at no producer groups.",
        plant=patch(
            "broker.access.door:AccessDoor.may_hear",
            ("or account.has(of_topic(topic, PUB))", "or True"),
        ),
    ),
    Mutant(
        name="halves-told-to-who-was-trusted",
        breaks="An address that the access file trusts no more goes on hearing of halves.",
        source="What is known of a connection, and not asked again when the file changes.",
        plant=patch("broker.access.door:AccessDoor._who", ("None if is_member else _NONE", "None")),
    ),
    Mutant(
        name="account-signature-not-compared",
        breaks="Whoever knows the name of an account has its rights.",
        source="A signature that is asked for and not looked at.",
        plant=patch(
            "broker.access.door:AccessDoor.refusal",
            ("if not account.signed(request):", "if 'Signature' not in fields:"),
        ),
    ),
    Mutant(
        name="reader-may-send",
        breaks="An account that may only read a topic may send to it.",
        source="Any permission of a topic taken for the one that is needed.",
        plant=patch(
            "broker.access.rules:Account.has",
            ("bool(owned & right.any_of)", "bool(owned)"),
        ),
    ),
    Mutant(
        name="administration-open-to-accounts",
        breaks="Any account makes topics, moves offsets and reads the access file.",
        source="RocketMQ 4.9.7 asks for an administrator in five requests only.",
        plant=patch(
            "broker.access.door:AccessDoor._lacking",
            ("None if account.is_admin else", "None if account else"),
        ),
    ),
    Mutant(
        name="place-names-any-message",
        breaks="By its place in the log an account reads, or is sent, a message of any topic.",
        source="RocketMQ 4.9.7 asks for no right in VIEW_MESSAGE_BY_ID.",
        plant=patch(
            "broker.access.door:AccessDoor._lacking",
            ("if code in PLACES:", "if code in ():"),
        ),
    ),
    Mutant(
        name="enforced-tls-for-some",
        breaks="Where TLS is enforced, who does not begin with it is served without.",
        source="RocketMQ's permissive mode, which is its default.",
        plant=patch(
            "ledgermq.remoting.transport.secure:SecureListener._secure",
            ("or self._tls.is_enforced", "or False"),
        ),
    ),
    Mutant(
        name="any-server-believed",
        breaks="A client with a CA takes the certificate of anybody.",
        source="RocketMQ's clients by default (tls.client.authServer=false).",
        plant=patch(
            "ledgermq.remoting.transport.tls:client_context",
            ("context.verify_mode = ssl.CERT_REQUIRED", "context.verify_mode = ssl.CERT_NONE"),
        ),
    ),
    Mutant(
        name="handshakes-without-end",
        breaks="Connections that never say what they are take all files of the process.",
        source="asyncio's server counts a connection once its handshake is over.",
        plant=patch(
            "ledgermq.remoting.transport.secure:SecureListener._take",
            ("len(self._pending) >= HANDSHAKES_MAX", "False"),
        ),
    ),
    Mutant(
        name="handshakes-without-turns",
        breaks="Whoever opens TLS connections without end takes all of the loop's time.",
        source="A handshake costs the server's processor more than its client's.",
        plant=patch(
            "ledgermq.remoting.transport.secure:HandshakeTurns._begin",
            ("self._next_s += self._gap_s", "self._next_s += 0"),
        ),
    ),
    Mutant(
        name="handshakes-given-up-still-wait",
        breaks="Connections that come and go leave what waits for a turn, without end.",
        source="A review: addresses take turns at what was given up, too.",
        plant=patch(
            "ledgermq.remoting.transport.secure:HandshakeTurns.wait", ("one is turn", "False")
        ),
    ),
    Mutant(
        name="asked-for-another-code",
        breaks="Who has no account sends, pulls and moves offsets: 29001 stands behind the code.",
        source="A review: handlers are found by the first code of a header, rules by the last.",
        plant=patch(
            "broker.access.door:AccessDoor._before_frames",
            ("request.code = code", "assert code"),
        ),
    ),
    Mutant(
        name="account-removed-by-hand-comes-back",
        breaks="A tool's change undoes what was written into the access file just before.",
        source="A review: the file was written from what was read up to 5 s earlier.",
        plant=patch(
            "broker.access.file:AccessFile.change",
            ("await asyncio.to_thread(self.refresh)", "await asyncio.sleep(0)"),
        ),
    ),
    Mutant(
        name="bad-access-file-ends-a-switch",
        breaks="A mistake in the access file, told and passed over, ends the broker in a failover.",
        source="A review: each role read the file as a start does.",
        plant=patch(
            "broker.access.file:AccessFile.begin",
            ('if self._problem == "":', "if True:"),
        ),
    ),
    Mutant(
        name="named-file-waited-for",
        breaks="A pipe in the place of a key or an access file stops a broker, a device fills it.",
        source="By hand: rocketmq.acl.plain.file and peerSharedKeyFile that name a pipe.",
        plant=patch("ledgermq.runtime.regular:read_named", ("if not stat.S_ISREG", "if not open")),
    ),
    Mutant(
        name="tagged-value-crashes",
        breaks="A value that YAML's own tags do not fit ends the reading of rules with a trace.",
        source="By hand: an access file with !!bool x, !!int '', !!timestamp x.",
        plant=patch(
            "broker.access.file:AccessFile._read",
            ("except (LookupError, AttributeError, TypeError):", "except ZeroDivisionError:"),
        ),
    ),
    Mutant(
        name="hidden-topic-read-on-its-way",
        breaks="Who may read all topics but one reads that one's delayed messages and halves.",
        source="A review: topics of the system fell under the permission for all others.",
        plant=patch(
            "broker.access.rules:Account._default_of",
            ("if topic in OF_ALL_TOPICS", "if topic in ()"),
        ),
    ),
)
