"""Planted bugs of the wire: what one request, connection or address may do to all others.

Sources: the fair shares of docs/security.md. A test plants each and sees the hole open.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

WIRE: Final = (
    Mutant(
        name="assertion-ends-the-process",
        breaks="A request that hits a broken assertion in its handler ends the process.",
        source="One request never ends a process.",
        plant=patch(
            "ledgermq.remoting.transport.dispatch:RequestDispatcher._answer_error",
            ("isinstance(error, FatalError)", "isinstance(error, (FatalError, AssertionError))"),
            ("error.message, error", "str(error), FatalError(str(error))"),
        ),
    ),
    Mutant(
        name="bad-header-is-our-error",
        breaks="A request whose header lacks a field is logged as an error of the broker's own.",
        source="A log tells of bugs: what strangers send is none (A62).",
        plant=patch(
            "ledgermq.remoting.transport.dispatch:RequestDispatcher._answer_error",
            ("isinstance(error, (InvalidHeader, RemoteProtocolError))", "False"),
        ),
    ),
    Mutant(
        name="served-coroutine-is-supervised",
        breaks="A coroutine that serves one request ends the process by what it raises.",
        source="One request never ends a process.",
        plant=patch(
            "ledgermq.runtime.tasks:Supervisor._on_served",
            ("self.stopping or not isinstance(error, Exception)", "error is not None"),
        ),
    ),
    Mutant(
        name="answer-breaks-dispatch",
        breaks="What the answer to one put raises ends the dispatching of all.",
        source="One request never ends a process.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.commit",
            ("report_serving_failure(ANSWERING, error)", "raise error"),
        ),
    ),
    Mutant(
        name="invariant-of-the-log-is-answered",
        breaks="A broken invariant of a put is answered, and the log goes on.",
        source="Assertions of log and store protect the data: they stay fatal.",
        plant=patch(
            "store.write.writer:Writer.__init__",
            ("invariants_are_fatal(commit_log.put)", "commit_log.put"),
        ),
    ),
    Mutant(
        name="references-double",
        breaks="What references of a JSON text expand to is not measured.",
        source="Work is bounded for each request: 2.6 KB became 850 MB.",
        plant=patch(
            "ledgermq.remoting.protocol.tolerant_json:_Reader.read_all",
            ("if self._references:", "if False:"),
        ),
    ),
    Mutant(
        name="slow-reader-without-end",
        breaks="The slow reader of JSON reads any number of values.",
        source="No request holds the loop for longer than 20 ms: 16 MB took 19 s.",
        plant=patch(
            "ledgermq.remoting.protocol.tolerant_json:_Reader._spend", ("self._left < 0", "False")
        ),
    ),
    Mutant(
        name="large-headers-are-read",
        breaks="A header of any size is decoded.",
        source="No request holds the loop for longer than 20 ms.",
        plant=patch(
            "ledgermq.remoting.transport.dispatch:RequestDispatcher.on_frame",
            ("len(frame.header) > HEADER_BYTES_MAX", "False"),
        ),
    ),
    Mutant(
        name="each-change-told-to-all",
        breaks="Each change of a large group is told to all of its members at once.",
        source="20,000 members that come and go cost their number squared.",
        plant=patch(
            "broker.groups.notifier:Notifier._tell", ("len(members) > SLICE", "len(members) < 0")
        ),
    ),
    Mutant(
        name="alarm-of-the-last-group",
        breaks="Members of a large group are told of a change once a larger one has had its rest.",
        source="Found by reading: an alarm that is set anew is not due when it was before.",
        plant=patch(
            "broker.groups.notifier:Notifier.notify",
            ("max(0, min(self._due.values()) - now_ms)", "rests_until - now_ms"),
        ),
    ),
    Mutant(
        name="all-held-pulls-woken-at-once",
        breaks="A message wakes all pulls that wait for it in one turn of the loop.",
        source="80,000 held pulls: one message deposed the leader.",
        plant=patch(
            "broker.processor.pull:PullProcessor.wake", ("work -= len(woken)", "work -= 0")
        ),
    ),
    Mutant(
        name="one-address-holds-all-pulls",
        breaks="One address may hold all pulls that a broker can hold.",
        source="Fair shares: what one takes is not all there is.",
        plant=patch(
            "broker.pulls.long_polling:HoldTable.hold",
            ("not self._room.fits(pull.holder)", "self._room.used >= 100"),
        ),
    ),
    Mutant(
        name="closing-looks-at-all-groups",
        breaks="The end of a connection looks at every producer group.",
        source="100,000 producer groups: a close took 19 s.",
        plant=patch(
            "broker.groups.client_registry:ProducerRegistry.close",
            ("self._members.groups_of(connection_id)", "list(self._groups)"),
        ),
    ),
    Mutant(
        name="full-server-refuses",
        breaks="A full server closes each new connection, however idle the others are.",
        source="4,096 idle connections locked everyone else out for 120 s.",
        plant=patch(
            "ledgermq.remoting.transport.server:RemotingServer.on_open",
            ("one_to_close(self._by_address, connection, self._spare_one)", "None"),
        ),
    ),
    Mutant(
        name="stuck-frames-stay",
        breaks="Beside thousands of parts of frames that never become whole no large one comes in.",
        source="2,048 connections of a network each with 65 KB take all room for frames.",
        plant=patch(
            "ledgermq.remoting.transport.shares:slowest_sender",
            ("one.partial_sweeps >= STUCK_SWEEPS_MIN", "False"),
        ),
    ),
    Mutant(
        name="tls-written-whole",
        breaks="What waits for a peer with TLS that does not read is not seen: it is read on.",
        source="uvloop's transport with TLS does not count what the one below has not sent.",
        plant=patch(
            "ledgermq.remoting.transport.pieces:counted",
            ('if transport.get_extra_info("sslcontext") is None:', "if True:"),
        ),
    ),
    Mutant(
        name="tls-pieces-let-down-together",
        breaks="A peer with TLS that has read a part has all that waits for it count for nothing.",
        source="As soon as the transport below has room, the one with TLS gives it all it has.",
        plant=patch(
            "ledgermq.remoting.transport.pieces:_InPieces._go_on",
            ("while self._waiting and not self._is_paused:", "while self._waiting:"),
        ),
    ),
    Mutant(
        name="tls-closed-before-the-rest",
        breaks="A connection with TLS that is closed does not send what waits of its answers.",
        source="A plain transport sends what it has before it closes.",
        plant=patch(
            "ledgermq.remoting.transport.pieces:_InPieces._go_on",
            ("if self._is_closing and not self._waiting:", "if self._is_closing:"),
        ),
    ),
    Mutant(
        name="only-the-largest-makes-room",
        breaks="A full server closes busy connections, and no silent one of other addresses.",
        source="A /48 of IPv6 has 65,536 networks: 4,096 silent connections are of one each.",
        plant=patch(
            "ledgermq.remoting.transport.shares:one_to_close",
            (
                "return spare() or (idlest if is_smaller else None)",
                "return idlest if is_smaller else None",
            ),
        ),
    ),
    Mutant(
        name="bodies-under-way-not-bounded",
        breaks="Requests that wait for something hold as many bodies as anybody sends.",
        source="256 requests of a connection, 16 MiB each, whose handlers read no body.",
        plant=patch(
            "ledgermq.remoting.transport.dispatch:RequestDispatcher._may_begin",
            ("if not size:", "if size >= 0:"),
        ),
    ),
    Mutant(
        name="flood-in-one-turn",
        breaks="All frames of a read are handled in one turn of the loop.",
        source="Fair shares: no connection has the loop for itself.",
        plant=patch(
            "ledgermq.remoting.transport.connection:Connection.buffer_updated",
            ("len(frames) > TURN_FRAMES_MAX", "False"),
        ),
    ),
    Mutant(
        name="turn-without-end",
        breaks="A turn of the loop handles what was read, however long that takes.",
        source="Frames of 14 KB that take 3 ms each, from eight connections, deposed a leader.",
        plant=patch(
            "ledgermq.remoting.transport.turns:Turns.is_over",
            ("return now_ns >= self._end_ns", "return False"),
        ),
    ),
    Mutant(
        name="expression-type-unweighed",
        breaks="The kind of a subscription's expression is kept, and not counted.",
        source="300 heartbeats held 600 MB that counted as 180 KB.",
        plant=patch("broker.groups.client_registry:weight_of", ("+ len(one.expression_type)", "")),
    ),
)
