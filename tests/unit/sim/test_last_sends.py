"""With everything healed each producer gets a message acknowledged, as it is by then."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import NoRoute
from sim import client_app
from sim.client_app import ClientApp
from sim.rng import SplitRng


@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("others", [0, 1])
def test_a_producer_sends_until_the_group_has_a_message_of_it(failures, others, monkeypatch):
    """Failures are repeated, and so is a message that went to a broker outside the group."""
    monkeypatch.setattr(client_app, "RETRY_S", 0)
    sent, noted = [], []
    record = SimpleNamespace(tag="00" * 16, sending=lambda number, *_: sent.append(number) or [])
    validators = SimpleNamespace(
        record=record, message=lambda *said: said, is_known=lambda queue: queue == "group"
    )
    machine = SimpleNamespace(clock=None, rng=SplitRng(1), incarnation=1)
    app = ClientApp("p0", 0, None, machine, validators, None)

    async def send(_message):
        if len(sent) <= failures:
            raise NoRoute("nobody leads")
        return SimpleNamespace(queue="alone" if len(sent) <= failures + others else "group")

    app._producer = SimpleNamespace(send=send)
    app._refused = lambda _rows, error: noted.append(type(error))
    app._acknowledged = lambda _rows, result: noted.append(result.queue)
    assert not app.has_sent_last
    asyncio.run(app.send_last())
    assert app.has_sent_last
    assert noted == [NoRoute] * failures + ["alone"] * others + ["group"]
    assert len(set(sent)) == len(sent)
