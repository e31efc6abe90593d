"""What brokers and name servers serve, as the processes register it; nothing is started."""

from broker.config import BrokerConfig
from broker.controller import BrokerController
from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.remoting.transport.requests import Requests
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.controller.config import ControllerConfig
from namesrv.controller.server import ControllerServer
from namesrv.guard import Guard
from namesrv.kv_config import KvConfig
from namesrv.processor import Processor
from namesrv.route_table import RouteTable


def broker_requests(*, in_group: bool) -> Requests:
    """Return what a broker serves, in a Raft group or on its own."""
    config = BrokerConfig(
        store_path="/nonexistent/store",
        enable_dledger=in_group,
        dledger_group="RaftGroup0",
        dledger_peers="n0-127.0.0.1:20911",
        dledger_self_id="n0",
    )
    controller = BrokerController(
        config, disk=RealDisk(), clock=SystemClock(), rng=SystemRng(7), tasks=Supervisor()
    )
    return controller.requests


def broker_codes() -> set[int]:
    """Return the codes that any broker serves."""
    requests = [broker_requests(in_group=in_group) for in_group in (True, False)]
    return {code for one in requests for code in (*one.hot, *one.commands)}


def controller_requests() -> Requests:
    """Return what a controller serves."""
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": "127.0.0.1:1"}, store_path="/nonexistent",
        bind_address="127.0.0.1",
    )  # fmt: skip
    machine = SystemClock(), RealDisk(), SystemRng(7)
    return ControllerServer(config, SecuritySettings(), machine, 1).requests


def namesrv_requests() -> Requests:
    """Return what a name server serves."""
    clock = SystemClock()
    kv_config = KvConfig(RealDisk(), "")
    processor = Processor(NamesrvConfig(), RouteTable(), kv_config, clock, lambda _: None)
    return processor.requests(Guard(dict, clock.wall_ms))
