"""A registry finds what components declare, wraps it, and lets no code have two handlers."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.cluster.guard import Guard as RealGuard
from broker.config import BrokerConfig
from broker.requests import broker_requests
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.remoting.transport.requests import Permission, Requests, ServedBy, serves


class Component:
    def __init__(self):
        self.frames = []

    @serves(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, what="send", hot=True)
    def handle_send(self, _connection, frame):
        self.frames.append(frame)

    @serves(RequestCode.GET_MAX_OFFSET, what="end", served_by=ServedBy.LEADER)
    def handle_end(self, _connection, request):
        return make_response(request, 0, "five")

    @serves(RequestCode.COMPACT, what="compact", permission=Permission.ADMINISTRATION)
    def handle_compact(self, _connection, request):
        return make_response(request, 0, "dropped")

    def handle_nothing(self):
        raise AssertionError("it is not declared")


class Heir(Component):
    def handle_end(self, _connection, request):
        raise AssertionError("it is not declared any more")


class Guard:
    def protect(self, handler):
        return lambda connection, request: make_response(request, 16, "no")


def test_handlers_are_found_by_what_they_declare():
    requests, component = Requests(lambda _, handler: handler), Component()
    requests.add(component)
    assert set(requests.hot) == {10, 310}
    assert set(requests.commands) == {30, 29_004}
    requests.hot[310](None, "frame")
    assert component.frames == ["frame"]
    assert [one.what for one in requests.declarations] == ["send", "end", "compact"]


def test_a_hot_handler_is_taken_as_it_is():
    component, requests = Component(), broker_requests(Guard(), lambda: False, lambda: False)
    requests.add(component)
    assert requests.hot[10] == component.handle_send


def test_no_code_has_two_handlers():
    requests = Requests(lambda _, handler: handler)
    requests.add(Component())
    with pytest.raises(ValueError, match="send: code 10 has a handler"):
        requests.add(Component())


def test_a_method_that_overrides_declares_anew_or_serves_nothing():
    requests = Requests(lambda _, handler: handler)
    requests.add(Heir())
    assert set(requests.commands) == {29_004}


def test_a_hot_handler_cannot_be_guarded():
    with pytest.raises(ValueError, match="cannot be guarded"):
        serves(
            RequestCode.SEND_MESSAGE, what="send", hot=True, permission=Permission.ADMINISTRATION
        )


def test_a_broker_asks_for_permission_and_for_leadership_first():
    leads = [True]
    requests = broker_requests(Guard(), lambda: leads[0], lambda: leads[0])
    requests.add(Component())
    ask = lambda code: requests.commands[code](None, RemotingCommand(code)).code  # noqa: E731
    assert [ask(30), ask(29_004)] == [0, 16]
    leads[0] = False
    assert [ask(30), ask(29_004)] == [14, 16]


@pytest.mark.parametrize("permission", [Permission.ADMINISTRATION, Permission.SETTINGS])
@pytest.mark.parametrize("leads", [True, False])
def test_a_guarded_request_of_the_leader_is_answered_by_every_replica(permission, leads):
    class Waiting:
        @serves(RequestCode.COMPACT, what="c", served_by=ServedBy.LEADER, permission=permission)
        async def handle(self, _connection, request):
            return make_response(request, 0, "done")

    store = CredentialStore(SecuritySettings(), "b", lambda: 0)
    store.load()
    guard = RealGuard(store, BrokerConfig(), lambda: 0)
    requests = broker_requests(guard, lambda: leads, lambda: leads)
    requests.add(Waiting())
    handler = requests.commands[RequestCode.COMPACT]
    sender = SimpleNamespace(remote=("127.0.0.1", 1))
    answer = asyncio.run(handler(sender, RemotingCommand(RequestCode.COMPACT)))
    assert answer.code == (0 if leads else 14)
