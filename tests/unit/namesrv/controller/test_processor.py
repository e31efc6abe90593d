"""What a controller makes of brokers' requests before it asks the others."""

import asyncio

import pytest

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.transport.credentials import SecuritySettings
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.commands import Code, Outcome
from namesrv.controller.config import ControllerConfig
from namesrv.controller.liveness import Heard
from namesrv.controller.machine import Machine
from namesrv.controller.node import DOUBT_MS, Controller
from namesrv.controller.server import ControllerServer
from namesrv.controller.state import Group, Replica

CLOCK = SystemClock()


class Connection:
    remote = ("127.0.0.1", 4711)

    def __init__(self, number):
        self.id = number


def controller_server():
    config = ControllerConfig(
        group="g", own_id="n0", peers={"n0": "127.0.0.1:1"}, store_path="/nonexistent",
        bind_address="127.0.0.1",
    )  # fmt: skip
    machine = CLOCK, RealDisk(), SystemRng(7)
    return ControllerServer(config, SecuritySettings(), machine, 1)


def known_after_register(connection_id, address, monkeypatch, code="c"):
    """Return whether the heartbeat of a replica at ``h:1``, over connection 1, still counts."""
    server = controller_server()
    asked = []

    async def decide(command):
        asked.append(command.other_alive)
        return Outcome(Code.GROUP_UNKNOWN)

    group = Group(cluster="C", replicas={1: Replica(check_code="c", address="h:1")})
    monkeypatch.setattr(Controller, "groups", {"a": group})
    monkeypatch.setattr(server.controller, "decide", decide)
    server.controller.hear("a", 1, Heard(CLOCK.monotonic_ms(), 10_000, "h:1", 1, 1, 2_000))
    fields = {"brokerName": "a", "clusterName": "C", "brokerId": "1", "brokerAddress": address}
    fields["registerCheckCode"] = code
    command = RemotingCommand(RequestCode.CONTROLLER_REGISTER_BROKER, ext_fields=fields)
    asyncio.run(server.requests.commands[command.code](Connection(connection_id), command))
    assert asked == [connection_id != 1]
    return server.controller.liveness.get("a", 1) is not None


@pytest.mark.parametrize(
    ("connection_id", "address", "known"), [(1, "h:1", True), (2, "h:1", False), (2, "h:2", True)]
)
def test_a_heartbeat_from_before_a_restart_counts_no_more(
    connection_id, address, known, monkeypatch
):
    assert known_after_register(connection_id, address, monkeypatch) is known


@pytest.mark.parametrize(("code", "known"), [("c", False), ("", True), ("of another", True)])
def test_a_living_replica_is_not_forgotten_for_one_that_cannot_be_it(code, known, monkeypatch):
    assert known_after_register(2, "h:1", monkeypatch, code) is known


def masters_after_registrations(monkeypatch, *told):
    """Return who is master of epoch 2 after 2 has told of a loss of power, by each set's epoch.

    2 was elected after its first registration; 1 was in sync before.
    """
    server = controller_server()
    replicas = {n: Replica(check_code=f"c{n}", address=f"h:{n}") for n in (1, 2)}
    group = Group(
        cluster="C", replicas=replicas, next_id=3, master=2, master_epoch=2, in_sync=(2,),
        in_sync_epoch=9, reserve=(1,), reserve_epoch=2,
    )  # fmt: skip
    assert not group.problem()
    machine = Machine({"a": group})

    async def decide(command):
        return machine.apply(command)

    monkeypatch.setattr(Controller, "groups", machine.groups)
    monkeypatch.setattr(Controller, "leads", True)
    monkeypatch.setattr(server.controller, "decide", decide)
    fields = {
        "brokerName": "a", "clusterName": "C", "brokerId": "2", "brokerAddress": "h:2",
        "registerCheckCode": "c2", "brokerMayLackEnd": "true", "lastEpoch": "1",
    }  # fmt: skip
    code, found = RequestCode.CONTROLLER_REGISTER_BROKER, []
    for epoch in told:
        said = fields if epoch is None else fields | {"syncStateSetEpoch": str(epoch)}
        command = RemotingCommand(code, ext_fields=said)
        answer = asyncio.run(server.requests.commands[code](Connection(2), command))
        after = machine.groups["a"]
        found.append((answer.code, after.master, after.in_sync))
    return found


def test_a_loss_of_power_that_is_told_of_late_takes_nobodys_office(monkeypatch):
    late, gone = (2001, 2, (2,)), (0, 0, (1,))
    assert masters_after_registrations(monkeypatch, 5, 9) == [late, gone]
    assert masters_after_registrations(monkeypatch, None) == [gone], "brokers of before say none"
    with planted(BY_TESTS["controller-late-registration-takes-the-office"]):
        assert masters_after_registrations(monkeypatch, 5) == [gone]


def heard_after_beat_from(address, monkeypatch):
    """Return the code of a heartbeat of replica 1, registered at ``h:1``, and whether it counts."""
    server = controller_server()
    group = Group(cluster="C", replicas={1: Replica(check_code="c", address="h:1")})
    monkeypatch.setattr(Controller, "groups", {"a": group})
    fields = {"brokerName": "a", "clusterName": "C", "brokerId": "1", "brokerAddr": address}
    command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=fields)
    answer = server.requests.commands[command.code](Connection(2), command)
    return answer.code, server.controller.liveness.get("a", 1) is not None


def test_a_heartbeat_from_another_address_says_nothing_of_a_replica(monkeypatch):
    assert heard_after_beat_from("h:1", monkeypatch) == (0, True)
    assert heard_after_beat_from("h:2", monkeypatch) == (2010, False)
    with planted(BY_TESTS["switch-heartbeat-from-elsewhere"]):
        assert heard_after_beat_from("h:2", monkeypatch) == (0, True)


def first_master(monkeypatch, wanted="1", **fields):
    """Return who is the first master: replica 1 asks, and 2 has a log from before."""
    server = controller_server()
    replicas = {n: Replica(check_code=f"c{n}", address=f"h:{n}") for n in (1, 2)}
    machine = Machine({"a": Group(cluster="C", replicas=replicas, next_id=3)})

    async def decide(command):
        return machine.apply(command)

    monkeypatch.setattr(Controller, "groups", machine.groups)
    monkeypatch.setattr(server.controller, "decide", decide)
    for one, end in ((1, 0), (2, 5_000)):
        heard = Heard(CLOCK.monotonic_ms(), 10_000, f"h:{one}", one, 0, end)
        server.controller.hear("a", one, heard)
    fields |= {"brokerName": "a", "brokerId": wanted}
    command = RemotingCommand(RequestCode.CONTROLLER_ELECT_MASTER, ext_fields=fields)
    asyncio.run(server.requests.commands[command.code](Connection(1), command))
    return machine.groups["a"].master


def elected_uncleanly(monkeypatch, **fields):
    """Return whether an election may take one that was not in sync."""
    server, asked = controller_server(), []

    async def decide(command):
        asked.append(command.unclean)
        return Outcome(Code.GROUP_UNKNOWN)

    monkeypatch.setattr(Controller, "groups", {})
    monkeypatch.setattr(server.controller, "decide", decide)
    fields |= {"brokerName": "a", "brokerId": "2"}
    command = RemotingCommand(RequestCode.CONTROLLER_ELECT_MASTER, ext_fields=fields)
    asyncio.run(server.requests.commands[command.code](Connection(1), command))
    return asked == [True]


def test_a_loss_is_accepted_by_who_names_the_master(monkeypatch):
    assert elected_uncleanly(monkeypatch, designateElect="true", acceptLoss="true")
    assert not elected_uncleanly(monkeypatch, designateElect="true")
    assert not elected_uncleanly(monkeypatch, acceptLoss="true")
    with planted(BY_TESTS["controller-any-named-one-is-elected"]):
        assert elected_uncleanly(monkeypatch, designateElect="true")


def test_the_first_master_is_who_has_a_log_from_before_not_who_asks(monkeypatch):
    assert first_master(monkeypatch) == 2
    assert first_master(monkeypatch, designateElect="true") == 1
    with planted(BY_TESTS["controller-first-come-first-master"]):
        assert first_master(monkeypatch) == 1


def elections_asked_for(alive, later_ms):
    """Return whether an election is asked for at once, and later: 2 lost its power last, of 3."""
    controller = controller_server().controller
    asked = []

    class Tasks:
        def serve(self, name, work):
            work.close()
            asked.append(name)

    controller._tasks = Tasks()
    now_ms = CLOCK.monotonic_ms()
    for one in alive:
        controller.hear("a", one, Heard(now_ms, 10_000, f"h:{one}", one, 1, 2_000))
    replicas = {n: Replica(check_code=f"c{n}", address=f"h:{n}") for n in (1, 2, 3)}
    group = Group(
        cluster="C", replicas=replicas, next_id=4, master_epoch=1, in_sync=(2,), in_sync_epoch=4,
        in_doubt=True,
    )  # fmt: skip
    assert not group.problem()
    found = []
    for at_ms in (now_ms, now_ms + later_ms):
        controller._maybe_elect("a", group, at_ms)
        found.append(len(asked))
    return found


def test_where_all_lost_their_power_it_is_heard_first_who_has_most():
    assert elections_asked_for((1, 2, 3), 0) == [1, 2]
    assert elections_asked_for((1, 2), DOUBT_MS - 1) == [0, 0]
    assert elections_asked_for((1, 2), DOUBT_MS) == [0, 1]
    assert elections_asked_for((1, 3), DOUBT_MS) == [0, 0]
    with planted(BY_TESTS["doubt-heard-by-nobody"]):
        assert elections_asked_for((1, 2), 0) == [1, 2]


def older_log(monkeypatch, *, of_master=0, end=5_000, epoch=0):
    """Return what an answer to 1004 says where 1 is the master, and 2 came later with a log."""
    server = controller_server()
    replicas = {n: Replica(check_code=f"c{n}", address=f"h:{n}") for n in (1, 2)}
    group = Group(
        cluster="C", replicas=replicas, next_id=3, master=1, master_epoch=1, in_sync=(1,),
        in_sync_epoch=1,
    )  # fmt: skip
    monkeypatch.setattr(Controller, "groups", {"a": group})
    monkeypatch.setattr(Controller, "leads", True)
    for one, what in ((1, (1, of_master)), (2, (epoch, end))):
        server.controller.hear("a", one, Heard(CLOCK.monotonic_ms(), 10_000, f"h:{one}", 1, *what))
    command = RemotingCommand(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    command.ext_fields = {"brokerName": "a"}
    answer = server.requests.commands[command.code](Connection(1), command)
    return answer.ext_fields.get("olderLog")


def test_an_empty_master_is_told_who_has_a_log_from_before(monkeypatch):
    assert older_log(monkeypatch) == "2"
    assert older_log(monkeypatch, of_master=1) is None
    assert older_log(monkeypatch, end=0) is None
    assert older_log(monkeypatch, epoch=3) is None, "it is of other controllers"
    with planted(BY_TESTS["older-log-of-other-controllers"]):
        assert older_log(monkeypatch, epoch=3) == "2"


def told_of_the_master(monkeypatch, *, leads):
    """Return the code of an answer to 1004 of a controller that knows who leads."""
    server = controller_server()
    monkeypatch.setattr(Controller, "groups", {"a": Group(cluster="C")})
    monkeypatch.setattr(Controller, "leads", leads)
    monkeypatch.setattr(Controller, "leader", "n1")
    command = RemotingCommand(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    command.ext_fields = {"brokerName": "a"}
    return server.requests.commands[command.code](Connection(1), command).code


def test_who_is_master_is_told_by_the_controller_that_leads_alone(monkeypatch):
    assert told_of_the_master(monkeypatch, leads=True) == 0
    assert told_of_the_master(monkeypatch, leads=False) == 2007
    with planted(BY_TESTS["master-told-by-who-does-not-lead"]):
        assert told_of_the_master(monkeypatch, leads=False) == 0


def members_asked_about(members, monkeypatch):
    """Return how many members of a set that a master sends the controllers are asked to decide."""
    server = controller_server()
    asked = []

    async def decide(command):
        asked.append(len(command.in_sync))
        return Outcome(Code.GROUP_UNKNOWN)

    monkeypatch.setattr(Controller, "groups", {})
    monkeypatch.setattr(server.controller, "decide", decide)
    fields = {"brokerName": "a", "masterBrokerId": "1", "masterEpoch": "1"}
    body = b'{"syncStateSet":[%s],"syncStateSetEpoch":1}' % b",".join([b"1"] * members)
    code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    command = RemotingCommand(code, ext_fields=fields, body=body)
    answer = asyncio.run(server.requests.commands[code](Connection(1), command))
    if not asked:
        assert answer.code == Code.INVALID_REQUEST
        assert "at most 4096 bytes" in answer.remark
    return sum(asked)


def test_a_set_of_any_size_is_refused_unread(monkeypatch):
    assert members_asked_about(16, monkeypatch) == 16
    assert members_asked_about(5_000, monkeypatch) == 0
    with planted(BY_TESTS["controller-reads-sets-of-any-size"]):
        assert members_asked_about(5_000, monkeypatch) == 5_000
