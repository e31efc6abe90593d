"""The admin client: what it makes of answers that are wrong, and of name servers that are down."""

import asyncio
import itertools

import msgspec
import pytest

from ledgermq.client import AdminClient, MessageQueue, NoOffset
from ledgermq.client.admin_api import AdminApi
from ledgermq.client.signer import Signer
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError, ResponseError
from ledgermq.remoting.protocol.signing import BadSignature, KeyCredentials, Trust, verify
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

KEY = b"a key of sixteen"


class Caller:
    """Answers everything alike."""

    def __init__(self, body=b"{}", code=0):
        self.body = body
        self.code = code
        self.asked = []

    async def request(self, addr, command, timeout_ms):
        self.asked.append((addr, command))
        return RemotingCommand(self.code, remark="no", body=self.body)


ASKS = {
    "topics": ("a",), "topic_stats": ("a", "t"), "groups": ("a",), "broker_status": ("a",),
    "consume_stats": ("a", "g", "t"), "reset_offsets": ("a", "g", "t", 0),
    "fetch_offset": ("a", "g", MessageQueue("t", "b", 0)),
}  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"offsetTable":{"x":1}}', b'{"table":7}'])
@pytest.mark.parametrize("name", sorted(ASKS))
def test_an_answer_that_lacks_something_is_said(name, body):
    api = AdminApi(Caller(body), 1_000)
    with pytest.raises(RemoteProtocolError):
        asyncio.run(getattr(api, name)(*ASKS[name]))


@pytest.mark.parametrize("name", sorted(ASKS))
def test_a_refusal_is_raised(name):
    api = AdminApi(Caller(code=16), 1_000)
    with pytest.raises(ResponseError, match="no"):
        asyncio.run(getattr(api, name)(*ASKS[name]))


def test_settings_are_lines():
    found = asyncio.run(AdminApi(Caller(b"a=b\n c = d=e \nnonsense\n"), 1_000).broker_config("x"))
    assert found == {"a": "b", "c": "d=e"}


def test_nobody_connected_is_no_error():
    assert asyncio.run(AdminApi(Caller(code=206), 1_000).connections("x", "g")) is None


NUMBERS = {
    "topic_stats": {"minOffset": 0, "maxOffset": "much", "lastUpdateTimestamp": 0},
    "group_progress": {"brokerOffset": "much", "consumerOffset": 0, "lastTimestamp": 0},
    "reset_offsets": "much",
}  # fmt: skip


@pytest.mark.parametrize("much", ["1e400", "[]", '"x"'])
@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_a_number_that_is_none_is_refused(name, much):
    row = msgspec.json.encode(NUMBERS[name]).decode().replace('"much"', much)
    key = f'{{"brokerName":"group-0","queueId":0,"topic":"{TOPIC}"}}'

    async def body(cluster):
        async with AdminClient(cluster.config(group="admin")) as client:
            client._admin = AdminApi(Caller(f'{{"offsetTable":{{{key}:{row}}}}}'.encode()), 1_000)
            with pytest.raises(RemoteProtocolError):
                await getattr(client, name)(*((TOPIC,) if name == "topic_stats" else ("g", TOPIC)))

    run(body)


def test_a_table_of_brokers_without_sense_is_refused():
    async def body(cluster):
        async with AdminClient(cluster.config(group="admin")) as client:
            for wrong in ({}, {"brokerAddrTable": 7}, {"brokerAddrTable": {"b": {}}}):
                caller = Caller(msgspec.json.encode(wrong))
                client._admin = AdminApi(caller, 1_000)
                with pytest.raises(RemoteProtocolError):
                    await client.brokers()

    run(body)


def test_a_topic_is_made_where_it_is_missing_too():
    """A broker that was down when it was made; its route does not name that one."""

    async def body(cluster):
        for server in cluster.name_servers:
            server.publish("made", {"group-0": {0: cluster.replicas[0].addr}})
        async with AdminClient(cluster.config(group="admin")) as client:
            await client.create_topic("made", 4)
        for name, (broker,) in cluster.brokers.items():
            assert broker.count(RequestCode.UPDATE_AND_CREATE_TOPIC) == 1, name

    run(body, groups=2, replicas=1)


def test_a_group_without_members_is_moved_and_copied_where_it_has_offsets_only():
    async def body(cluster):
        leader = cluster.replicas[0]
        stats = ",".join(
            f'{{"brokerName":"group-0","queueId":{n},"topic":"orders"}}:'
            '{"lastUpdateTimestamp":0,"maxOffset":9,"minOffset":0}'
            for n in range(4)
        )
        cluster.group.offsets["g", TOPIC, 2] = 5

        made, refusing = [], []

        class Asked:
            """Refuses a group that was not made, as RocketMQ 5 does, where told to."""

            async def request(self, addr, command, timeout_ms):
                if command.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                    made.append(command.body)
                    return RemotingCommand(0)
                if refusing and not made and command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
                    return RemotingCommand(26, remark="Group new not exist!")
                if command.code == RequestCode.GET_TOPIC_STATS_INFO:
                    return RemotingCommand(0, body=f'{{"offsetTable":{{{stats}}}}}'.encode())
                if command.code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
                    return RemotingCommand(206, remark="Consumer not online")
                return await client._instance.client.request(addr, command, timeout_ms)

        async with AdminClient(cluster.config(group="admin")) as client:
            client._admin = AdminApi(Asked(), 1_000)
            moved = await client.reset_offsets("g", TOPIC, 0)
            with pytest.raises(NoOffset, match="group nogroup has no offset in topic orders"):
                await client.reset_offsets("nogroup", TOPIC, 0)
            cluster.group.offsets["g", TOPIC, 2] = 5
            copied = await client.clone_offsets("g", "copy", TOPIC)
            with pytest.raises(NoOffset, match="group nogroup has no offset in topic orders"):
                await client.clone_offsets("nogroup", "copy", TOPIC)
            made.clear()
            cluster.group.offsets["g", TOPIC, 2] = 6
            refusing.append(True)
            assert await client.clone_offsets("g", "new", TOPIC) == {
                MessageQueue(TOPIC, "group-0", 2): 6
            }
        assert made == [b'{"groupName":"new"}']
        assert moved == {MessageQueue(TOPIC, "group-0", 2): 0}
        assert copied == {MessageQueue(TOPIC, "group-0", 2): 5}
        assert leader.commits == [(TOPIC, 2, 0), (TOPIC, 2, 5), (TOPIC, 2, 6)]

    run(body)


class Asked:
    """Says who it is, and keeps what else it is asked."""

    def __init__(self, status):
        self.status = status
        self.kept = []

    async def request(self, addr, command, timeout_ms):
        if command.code == RequestCode.RAFT_STATUS:
            return RemotingCommand(0, body=msgspec.json.encode(self.status))
        self.kept.append(command)
        return RemotingCommand(0)


class Noon:
    """Always says the same time."""

    def wall_ms(self):
        return 43_200_000


def removals(status):
    """Return the requests that remove a topic, a group, and a topic at a name server."""

    async def body():
        numbers = itertools.count()
        credentials = KeyCredentials(KEY, "me")
        signer = Signer(asked, credentials, Noon(), lambda ms: f"{ms}-{next(numbers)}", 1_000)
        api = AdminApi(asked, 1_000, signer)
        await api.delete_topic("a", "t")
        await api.delete_group("a", "g", offsets=True)
        await api.forget_topic("a", "t")

    asked = Asked(status)
    asyncio.run(body())
    return asked.kept


def test_removals_are_signed_for_the_server_that_is_to_do_them():
    trust = Trust((KEY,))

    def check(audiences):
        for command, audience in zip(
            removals({"group": "G", "node": "n1"}), audiences, strict=True
        ):
            verify(command, trust, now_ms=Noon().wall_ms(), audience=audience)

    check(("G/n1", "G/n1", "namesrv"))
    trust = Trust((KEY,))
    with pytest.raises(BadSignature, match="not for G/n2"):
        check(("G/n2", "G/n2", "namesrv"))
    trust = Trust((KEY,))
    with planted(BY_TESTS["removal-signed-for-everybody"]), pytest.raises(BadSignature):
        check(("G/n1", "G/n1", "namesrv"))


def test_a_broker_in_no_group_is_called_by_its_name_twice():
    commands = removals({"node": "solo", "mode": "ASYNC_MASTER"})
    for command, audience in zip(commands, ("solo/solo", "solo/solo", "namesrv"), strict=True):
        verify(command, Trust((KEY,)), now_ms=Noon().wall_ms(), audience=audience)


def test_a_broker_that_does_not_say_who_it_is_gets_nothing_signed():
    with pytest.raises(RemoteProtocolError, match="does not say who it is"):
        removals({"role": "leader"})


def test_nothing_is_signed_without_credentials():
    asked = Asked({})
    api = AdminApi(asked, 1_000)
    asyncio.run(api.delete_topic("a", "t"))
    asyncio.run(api.delete_group("a", "g", offsets=False))
    assert [command.ext_fields for command in asked.kept] == [
        {"topic": "t"}, {"groupName": "g", "removeOffset": "false", "cleanOffset": "false"},
    ]  # fmt: skip
