"""Planted bugs in how work and room are shared: by slices, by addresses, by weight.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

FAIRNESS: Final = (
    Mutant(
        name="dead-topics-removed-at-once",
        breaks="The topics of a broker that is gone are removed in one turn of the loop.",
        source="380,000 topics behind one connection: its end held the loop for 1.8 s.",
        plant=patch("namesrv.rows:TopicRows.sweep", ("left = TOPICS_PER_TURN", "left = 2**31")),
    ),
    Mutant(
        name="routes-to-the-gone",
        breaks="What a broker that is gone has left behind is shown until it is removed.",
        source="RouteInfoManager: no route names a broker that is not in the live table.",
        plant=patch(
            "namesrv.rows:TopicRows.find",
            (
                "[(living[number], data) for number, data in rows.items() if number in living]",
                "[(living.get(one) or Group('b', '', 0), data) for one, data in rows.items()]",
            ),
        ),
    ),
    Mutant(
        name="all-topics-listed-at-once",
        breaks="The list of all topics is made in one turn of the loop.",
        source="380,000 names took 400 ms.",
        plant=patch(
            "namesrv.listing:Listing.small",
            ("for group in groups) > NAMES_PER_TURN", "for group in groups) < 0"),
        ),
    ),
    Mutant(
        name="broker-names-unbounded",
        breaks="Brokers are bounded by their number, whatever their names take.",
        source="10,000 brokers with the longest names: the answer of 106 fits into no frame.",
        plant=patch(
            "namesrv.route_table:RouteTable._is_too_heavy",
            ("return more > 0 and", "return more < 0 and"),
        ),
    ),
    Mutant(
        name="one-queue-for-all-addresses",
        breaks="Connections that wait for a turn stand in one queue, whoever has how many there.",
        source="A thousand flooding connections of one address: a polite one waited for each.",
        plant=patch(
            "ledgermq.remoting.transport.turns:Turns.wait",
            ("self._waiting.add(party_of(connection.remote[0]),", "self._waiting.add('',"),
        ),
    ),
    Mutant(
        name="held-tags-unweighed",
        breaks="Held pulls are bounded by their number, whatever tags they wait for.",
        source="Pulls with a thousand tags each: 25,000 of them held 1.6 GB.",
        plant=patch(
            "broker.pulls.long_polling:HoldTable._share_filter",
            ("not self._filters_room.fits(pull.holder, shared.weight)", "False"),
        ),
    ),
    Mutant(
        name="one-connection-holds-all",
        breaks="One connection may hold all pulls of its address.",
        source="The end of a connection forgets all that it held in one turn of the loop.",
        plant=patch(
            "broker.pulls.long_polling:HoldTable.hold",
            ("len(mine) >= HELD_OF_CONNECTION_MAX", "False"),
        ),
    ),
    Mutant(
        name="refused-messages-cost-nothing",
        breaks="A woken pull counts for one, however many messages it has looked at in vain.",
        source="128 pulls for rare tags behind 800 messages: one turn of 40 ms.",
        plant=patch(
            "broker.processor.pull:PullProcessor._rerun", ("+ seen // WORK_MESSAGES", "+ 0 * seen")
        ),
    ),
    Mutant(
        name="client-takes-any-route",
        breaks="A client makes an object of each queue of a route, however many are claimed.",
        source="RocketMQ's client makes a list of writeQueueNums queues, up to 2^31.",
        plant=patch(
            "ledgermq.client.route:_add_queues",
            ("if len(queues) + count > ROUTE_QUEUES_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="client-remembers-all-brokers",
        breaks="A client remembers each broker that any route ever named.",
        source="A name server that tells other names at each question.",
        plant=patch(
            "ledgermq.client.route:RouteCache._store",
            ("if len(self._addrs) > BROKERS_KNOWN_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="client-takes-any-offset",
        breaks="A client takes messages of any offsets from a pull.",
        source="A message that comes twice never counts against what may be cached.",
        plant=patch(
            "ledgermq.client.pulled:check_places",
            ("if not offset < message.queue_offset < end:", "if False:"),
        ),
    ),
    Mutant(
        name="client-inflates-everything",
        breaks="All messages of a pull are decompressed, whatever they take.",
        source="A frame of 1 MB that takes 2 GB.",
        plant=patch(
            "ledgermq.client.pulled:decode_pulled",
            ("if inflated_bytes >= PULLED_CONTENT_BYTES_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="log-room-without-end",
        breaks="Large messages are appended whatever is under way, up to the log's own limit.",
        source="A flood of 3 MiB messages: a small send of another client waited for 1.5 to 3 s.",
        plant=patch("broker.sends.room:LogRoom.is_free", ("< LOG_ROOM_BYTES", "< 2**62")),
    ),
    Mutant(
        name="room-in-one-queue",
        breaks="Who waits for room in the log stands in one queue, whoever has how many there.",
        source="As above, for a large message of another client.",
        plant=patch(
            "broker.sends.room:LogRoom._add",
            ("self._flows.add(party_of(one.remote[0]),", "self._flows.add('',"),
        ),
    ),
    Mutant(
        name="sends-overtake-one-that-waits",
        breaks="Small sends of a connection go on past a large one that waits for room.",
        source="What a producer sends over a connection is stored in its order.",
        plant=patch(
            "ledgermq.remoting.transport.connection:Connection._handle_frames",
            (
                "if self._wait_for_room(full, frames[number:]):\n                return",
                "if self._wait_for_room(full, [frame]):\n                continue",
            ),
        ),
    ),
    Mutant(
        name="room-waits-for-ever",
        breaks="Large messages wait for as long as nothing is committed.",
        source="A leader that has lost the others answers by its own limits and times.",
        plant=patch("broker.sends.room:LogRoom._has_room", (">= STALLED_MS", ">= 2**62")),
    ),
    Mutant(
        name="ipv6-by-address",
        breaks="Each IPv6 address has a share of its own.",
        source="Whoever has a network of 64 bits, as each home has, takes what thousands may.",
        plant=patch(
            "ledgermq.remoting.protocol.hosts:party_of",
            ('address if ":" not in address else _network_of(address)', "address"),
        ),
    ),
    Mutant(
        name="no-place-for-a-newcomer",
        breaks="Where many addresses fill what may wait for room, whoever comes later is refused.",
        source="Forty addresses with large messages: no large one of another address is let in.",
        plant=patch("broker.sends.room:LogRoom._has_place", ("if share.of(address):", "if True:")),
    ),
    Mutant(
        name="pushed-out-in-vain",
        breaks="Large messages of others are refused for one that gets no place all the same.",
        source="64 of 16 KiB make no room for one of 16 MiB.",
        plant=patch(
            "broker.sends.room:LogRoom._has_place",
            ("self._flows.add(most, (one, freed_bytes))", "one.refuse(NoRoom(self))"),
            ("share.take(most, freed_bytes)", "pass"),
        ),
    ),
    Mutant(
        name="late-sends-stored",
        breaks="A large send that waited for longer than its client does is stored all the same.",
        source="64 senders of 3 MiB: what is stored after their time, each retry stores again.",
        plant=patch(
            "broker.sends.room:LogRoom._is_too_late", (">= LOG_WAITING_MS_MAX", ">= 2**62")
        ),
    ),
    Mutant(
        name="room-for-small-ones-only",
        breaks="Large messages wait for as long as small ones fill the log, commit by commit.",
        source="A synchronous master whose slave confirms nothing has 3 s of small ones there.",
        plant=patch("broker.sends.room:LogRoom._has_room", (">= STARVED_MS", ">= 2**62")),
    ),
    Mutant(
        name="copies-without-room",
        breaks="What consumers give back is copied although the log has no room.",
        source="300 requests 36 of some hundred bytes: a small send waited for 3 s.",
        plant=patch(
            "broker.processor.send_back:SendBackProcessor._message",
            (" and not self._room.is_free()", " and False"),
        ),
    ),
    Mutant(
        name="commits-without-room",
        breaks="Transactions are committed although the log has no room for their messages.",
        source="As above, by requests 37.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._check_room",
            ("if not self._room.is_free():", "if False:"),
        ),
    ),
    Mutant(
        name="parked-sends-without-room",
        breaks="Sends that waited for their topic are let go on although the log has no room.",
        source="As above, by sends to new topics.",
        plant=patch("broker.sends.waiting:WaitingRoom.let_go", ("await self._enter()", "pass")),
    ),
    Mutant(
        name="tried-in-vain-goes-last",
        breaks="A request that found no time in the turn that it was let into waits behind all.",
        source="Requests of another address that take 10 ms each: it waited for all but 63.",
        plant=patch(
            "ledgermq.remoting.transport.turns:Turns.begin",
            ("wait = self._wait_on", "pass"),
        ),
    ),
    Mutant(
        name="delayed-bytes-unbounded",
        breaks="What is due is delivered however many bytes are on their way.",
        source="As above, by large messages that are due at once.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._is_full",
            ("self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX", "False"),
        ),
    ),
    Mutant(
        name="slave-offsets-by-their-keys",
        breaks="Offsets for slaves are put into text 64 keys at a time, however many each has.",
        source="Fifteen keys with 65,536 offsets each, all that the table takes: 66 ms in a turn.",
        plant=patch(
            "broker.processor.slave_tables:SlaveTablesProcessor._parts",
            ("or count >= OFFSETS_PER_STEP", "or count < 0"),
        ),
    ),
    Mutant(
        name="a-row-for-each-group",
        breaks="A slave of a master with more than 16,384 consumer groups gets none of its tables.",
        source="Rows of an answer are bounded, and 201 is to be whole.",
        plant=patch(
            "broker.processor.groups:GroupsProcessor._members",
            ("islice(configs, GROUPS_PER_STEP)", "islice(configs, 1)"),
        ),
    ),
    Mutant(
        name="parked-bytes-unbounded",
        breaks="Halves are put aside however many bytes of them are on their way.",
        source="300 halves of 3 MiB that nobody ends: small sends waited for all of them.",
        plant=patch(
            "broker.transactions.service:Transactions._is_parking_full",
            ("self._parking_bytes >= PARKING_BYTES_MAX", "False"),
        ),
    ),
)
