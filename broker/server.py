"""The broker as a process: settings, machine, controller, the way down."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.config import BrokerConfig
from broker.controller import BrokerController
from broker.ports import check_no_plain_log, check_understood
from broker.switch.broker import SwitchingBroker
from ledgermq.remoting.transport.config import TransportConfig, connections_within
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.config import Properties, bind, load_properties
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.log_format import configure_logging
from ledgermq.runtime.process import freeze_gc, raise_open_files_limit, run_main
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from store.recovery.directory import lock_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTROLLER_MODE: Final = "enableControllerMode"
_SAID_BY_CONTROLLERS: Final = ("brokerId", "brokerRole", "haMasterAddress")


def load_config(path: str | None, overrides: Mapping[str, str]) -> BrokerConfig:
    """Return the settings of a properties file and of ``key=value`` overrides.

    Raises:
        FatalError: names file, line, key and value at fault.
    """
    properties = load_properties(path) if path else Properties()
    asked = {**properties, **overrides}.get(CONTROLLER_MODE, "false")
    if asked.strip().lower() == "true":  # RocketMQ's samples have brokerId=-1, brokerRole=SLAVE
        for name in _SAID_BY_CONTROLLERS:
            properties.pop(name, None)
        overrides = {
            name: text for name, text in overrides.items() if name not in _SAID_BY_CONTROLLERS
        }
    return bind(BrokerConfig, properties, overrides)


async def serve(config: BrokerConfig) -> None:
    """Run a broker until the task is cancelled, then stop it cleanly.

    Raises:
        FatalError: it cannot start or go on.
    """
    disk = RealDisk()
    check_understood(disk, config)
    claim = None
    if config.enable_dledger:
        check_no_plain_log(disk, config)
        # A member locks its log. RocketMQ, started on the directory, looks at this lock alone.
        claim = partial(lock_directory, disk, config.store_path)
    transport = TransportConfig(connections_max=connections_within(raise_open_files_limit()))
    clock, rng = SystemClock(), SystemRng()
    controller: BrokerController | SwitchingBroker
    if config.enable_controller_mode:
        controller = SwitchingBroker(config, disk=disk, clock=clock, rng=rng, transport=transport)
    else:
        controller = BrokerController(
            config, disk=disk, clock=clock, rng=rng, tasks=Supervisor(), transport=transport,
            claim=claim,
        )  # fmt: skip
    try:
        await controller.start()
        freeze_gc()
        await asyncio.get_running_loop().create_future()
    finally:
        await controller.stop()


def run(config: BrokerConfig) -> int:
    """Run a broker process until a signal; returns its exit code."""
    configure_logging(config.self_id if config.enable_dledger else config.broker_name)
    return run_main(lambda: serve(config))
