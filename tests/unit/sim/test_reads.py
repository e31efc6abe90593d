"""What a client of the simulation asks is judged by whom it asked, not by whom it could ask now."""

import asyncio
from types import SimpleNamespace

from ledgermq.client import MessageQueue
from sim.reads import Reads
from sim.workload import Kind, Op

QUEUE = MessageQueue("orders", "alone", 6)


class Leaders:
    async def call(self, queue, request):
        return await request(f"address of {queue.broker_name}")


class Finder:
    """Asks the brokers of its route, none of which has anything."""

    def __init__(self, brokers):
        self.brokers = brokers
        self.asked = []
        self._leaders = Leaders()

    async def by_key(self, topic, key, max_count):
        for broker in self.brokers:
            await self._leaders.call(MessageQueue(topic, broker, 0), self.ask)
        return []

    async def ask(self, address):
        self.asked.append(address)


def checked(*routes):
    """Ask once for each route; return the questions that were judged."""
    heard = []
    answers = SimpleNamespace(
        places_of=lambda key, topic: [("orders", 6, 10)],
        on_found=lambda question, before, found, limit: heard.append((question, before, found)),
    )
    validators = SimpleNamespace(answers=lambda queue: answers, questions=[])
    record = SimpleNamespace(count=lambda name: None)
    finder = Finder([])
    workload = SimpleNamespace(strain=None)
    reads = Reads("p0", (None, finder), record, validators, workload)
    reads.known.add(7, QUEUE, "unique", "id")
    for brokers in routes:
        finder.brokers = brokers
        asyncio.run(reads._query(Op(0, 0, Kind.QUERY, 0, 0, 1, 0)))
    assert len(finder.asked) == sum(map(len, routes)), "the calls go on as before"
    return heard


def test_an_answer_is_checked_if_the_broker_of_the_message_was_asked():
    assert checked(["alone"], ["alone", "group"]) == [("key 7", [("orders", 6, 10)], [])] * 2


def test_a_broker_that_was_not_in_the_route_gave_no_answer():
    assert checked(["group"], []) == []


def test_one_that_was_asked_before_was_not_asked_now():
    assert len(checked(["alone"], ["group"])) == 1
