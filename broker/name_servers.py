"""Builds what keeps the name servers informed of a broker: its connections and its word."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.cluster.registration import Registrar
from broker.cluster.registration_body import register_request, signed, unregister_request
from broker.processor.registered import confirm_handlers
from ledgermq.remoting.transport.client import RemotingClient

if TYPE_CHECKING:
    from broker.core import Core
    from broker.modes.mode import Mode
    from ledgermq.remoting.protocol.command import RemotingCommand


def build_registrar(core: Core, mode: Mode) -> tuple[RemotingClient, Registrar]:
    """Return the connections to name servers, and who registers over them."""
    client = RemotingClient(
        handlers=confirm_handlers(lambda: mode.broker_id),
        on_disconnect=lambda addr, _connection: registrar.connection_lost(addr),
        tls=core.files.client_tls,
    )
    registrar = Registrar(
        core.config.namesrvs,
        client,
        build=partial(_registration, core, mode),
        build_leave=partial(_farewell, core, mode),
        on_registered=mode.on_registered,
        period_ms=core.config.register_period_ms,
    )
    return client, registrar


def _registration(core: Core, mode: Mode) -> RemotingCommand:
    request = register_request(core.config, core.tables.topics, mode.broker_id, mode.term)
    return _signed(core, mode, request)


def _farewell(core: Core, mode: Mode) -> RemotingCommand:
    return _signed(core, mode, unregister_request(core.config, mode.broker_id))


def _signed(core: Core, mode: Mode, command: RemotingCommand) -> RemotingCommand:
    nonce = "".join(f"{core.rng.randint(0, 2**31 - 1):08x}" for _ in range(4))
    return signed(command, mode.credentials.credentials, core.clock.wall_ms(), nonce)
