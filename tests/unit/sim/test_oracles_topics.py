"""Topics are made as their senders want, and messages lie in queues that are there."""

import pytest

from sim.oracles.base import Violation
from sim.oracles.model import Statement
from sim.oracles.topics import Topics
from sim.oracles.truth import Truth
from sim.oracles.wire import Said


class World:
    """A group whose log gets topics."""

    def __init__(self, model_queues=8):
        self.truth = Truth(("n0",))
        self.topics = Topics(self.truth)
        self.topics.model_queues = model_queues

    def send(self, queues="4", model="TBW102", topic="new"):
        self.topics.on_send(topic, Said(310, {"b": topic, "c": model, "d": queues}, b"", 0, b""))

    def make(self, read, write, topic="new"):
        config = {"topicName": topic, "readQueueNums": read, "writeQueueNums": write}
        content = {"config": config, "timestamp": 1}
        self.truth.statements.append(Statement(1, 0, "topic", content))

    def acknowledge(self, queue_id=0, topic="new"):
        self.topics.on_acknowledged(topic, queue_id, "n0")


@pytest.mark.parametrize(
    ("made", "model_queues", "is_sound"),
    [((4, 4), 8, True), ((8, 8), 8, False), ((3, 3), 8, False), ((2, 2), 2, True),
     ((4, 4), 2, False), ((4, 8), 8, False)],
)  # fmt: skip
def test_a_topic_has_the_smaller_number_of_queues(made, model_queues, is_sound):
    world = World(model_queues)
    world.send()
    world.make(*made)
    if is_sound:
        world.acknowledge()
    else:
        with pytest.raises(Violation, match="A39 topic made otherwise"):
            world.acknowledge()


def test_any_of_several_senders_may_have_made_it():
    world = World()
    world.send("4")
    world.send("6")
    world.make(6, 6)
    world.send("1")  # it is there already
    world.acknowledge()


def test_nothing_is_said_where_nobody_knows_who_made_it():
    for kwargs in ({"model": "other"}, {"queues": "x"}):
        world = World()
        world.send(**kwargs)
        world.send()
        world.make(7, 7)
        world.acknowledge()
    world = World()
    world.send()
    world.topics.on_change("new")
    world.make(7, 7)
    world.acknowledge()
    world = World(model_queues=0)
    world.send()
    world.make(7, 7)
    world.acknowledge()


def test_a_queue_that_the_topic_never_had_holds_no_message():
    world = World()
    world.make(4, 6)
    world.acknowledge(5)
    world.make(2, 2)
    world.acknowledge(5)  # it had it once
    for queue_id in (6, -1):
        with pytest.raises(Violation, match="A39 stored in no queue"):
            world.acknowledge(queue_id)
    world.acknowledge(9, topic="of the system")
