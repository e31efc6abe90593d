"""Planted bugs of the name server: what it believes, and what it remembers; and of logging."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

NAMESRV: Final = (
    Mutant(
        name="one-slice-of-the-silent",
        breaks="Of many brokers that are silent the first slice is removed, no other before the"
        " next scan.",
        source="RocketMQ RouteInfoManager.scanNotActiveBroker goes through all of them.",
        plant=patch("namesrv.server:NameServer._scan", ("if gone:", "if False:")),
    ),
    Mutant(
        name="own-stall-is-their-silence",
        breaks="A name server that stood still for two minutes takes all brokers for dead.",
        source="RocketMQ RouteInfoManager.scanNotActiveBroker compares times alone.",
        plant=patch("namesrv.server:NameServer._scan", ("if late_ms > STALL_MS:", "if False:")),
    ),
    Mutant(
        name="slave-of-another-cluster",
        breaks="A slave of another cluster is told the master, and takes its name to that cluster.",
        source="RocketMQ RouteInfoManager.registerBroker does not compare clusters.",
        plant=patch(
            "namesrv.route_table:_slave_refusal",
            ("if registration.cluster == group.cluster:", "if True:"),
        ),
    ),
    Mutant(
        name="claim-believed",
        breaks="Who claims the name of a group that has a living leader is believed at once.",
        source="RocketMQ RouteInfoManager.registerBroker takes every registration as it comes.",
        plant=patch("namesrv.route_table:RouteTable.holders", ("return found", "return []")),
    ),
    Mutant(
        name="impossible-registration-believed",
        breaks="A registration with a broker id or term that cannot be is believed.",
        source="RocketMQ RouteInfoManager.registerBroker checks no field of the header.",
        plant=patch(
            "namesrv.claims:check_header",
            ("if not 0 <= header.broker_id <= BROKER_ID_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="registrations-all-at-once",
        breaks="All registrations under way are worked through in the same turns of the loop.",
        source="48 frames of 8 KB that inflate to 8 MiB kept routes waiting for 2.5 s.",
        plant=patch(
            "namesrv.admission:Admission._register_in_turn",
            ("async with self._working:", "if True:"),
        ),
    ),
    Mutant(
        name="registrations-wait-for-a-rival",
        breaks="While a holder is asked whether it lives, no other registration is worked through.",
        source="24 connections of one address that answered nothing held up a broker for 12 s.",
        plant=patch(
            "namesrv.admission:Admission._take",
            (
                "if self._unasked(claim, silent):",
                "if await self._ask_holders(claim, silent):",
            ),
        ),
    ),
    Mutant(
        name="registrations-of-one-address",
        breaks="One address takes all places of registrations that are being worked through.",
        source="40 of its connections had half of another broker's registrations refused.",
        plant=patch("namesrv.admission:Admission._has_place", ("free // SHARE", "free + 1")),
    ),
    Mutant(
        name="routes-remembered-without-bound",
        breaks="The route of each topic that was asked for stays in memory.",
        source="6,000 routes of a group with 252 members took 400 MB.",
        plant=patch(
            "namesrv.processor:Processor._recall",
            ("self._routes_bytes > ROUTES_BYTES_MAX", "False"),
        ),
    ),
    Mutant(
        name="kv-namespace-stays",
        breaks="A namespace stays when its last configuration value was deleted.",
        source="RocketMQ KVConfigManager.deleteKVConfig keeps the empty table.",
        plant=patch("namesrv.kv_config:KvConfig.delete", ("if not values:", "if False:")),
    ),
    Mutant(
        name="closing-scans-all-brokers",
        breaks="The end of a connection is compared with every broker, each time one is removed.",
        source="RocketMQ RouteInfoManager.onChannelDestroy walks the live table.",
        plant=patch(
            "namesrv.route_table:RouteTable.on_connection_closed",
            (
                "self._remove(addr)",
                "[one for one in self.rows.topics if one]; self._remove(addr)",
            ),
        ),
    ),
    Mutant(
        name="unsigned-registration-taken",
        breaks="A name server that has a key takes registrations that nobody signed.",
        source="RocketMQ's name server asks for no credentials of brokers.",
        plant=patch("namesrv.guard:Guard.refusal", ("if not trust or (", "if True or (")),
    ),
    Mutant(
        name="lines-not-throttled",
        breaks="Each bad request writes a line, however many there are.",
        source="A client that fills the disk with its errors.",
        plant=patch(
            "ledgermq.runtime.log_format:Throttle.filter",
            ("if state[1] > LINES_PER_KIND:", "if False:"),
        ),
    ),
    Mutant(
        name="claim-displaces-who-came-last",
        breaks="A claim displaces a broker that came while its forerunner was asked.",
        source="A question that takes half a second, and others that register meanwhile.",
        plant=patch(
            "namesrv.admission:Admission._unasked", ("if one not in silent]", "if not silent]")
        ),
    ),
)
