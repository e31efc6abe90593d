"""What a batch promises: accepted or refused whole, and unknown when its leader is lost midway.

Its messages are entries of their own, and Raft commits entries: no leader can promise more.
"""

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.store.fakes import World, batch_of, message


class Sent:
    """A leader with a batch of four messages under way."""

    def __init__(self, **options):
        self.world = World().begin()
        self.world.node.lead()
        self.first = self.world.node.end_index + 1
        self.answers = []
        batch = batch_of([message(body=b"%d" % number, **options) for number in range(4)])
        self.world.store.writer.put_batch(batch, lambda *answer: self.answers.append(answer))

    def readable(self):
        return self.world.store.reader.max_offset("t", 0)


def test_nobody_is_told_before_its_last_message_is_committed():
    sent = Sent()
    sent.world.node.commit(sent.first + 1)
    assert (sent.answers, sent.readable()) == ([], 2)
    sent.world.node.commit()
    assert [answer[0] for answer in sent.answers] == [PutStatus.OK]
    assert sent.readable() == 4


def test_a_leader_that_is_lost_midway_leaves_the_first_part_and_says_unknown():
    """Its successor has what a majority has: the first two, and never the others."""
    sent = Sent()
    sent.world.node.commit(sent.first + 1)
    sent.world.node.follow()
    assert [answer[0] for answer in sent.answers] == [PutStatus.UNKNOWN]
    assert sent.answers[0][0].outcome_unknown
    assert sent.readable() == 2


def test_a_refused_batch_leaves_nothing():
    sent = Sent(properties=b"p" * 40_000)
    assert [answer[0] for answer in sent.answers] == [PutStatus.PROPERTIES_SIZE_EXCEEDED]
    assert sent.world.node.end_index == sent.first - 1


def roll_back_behind_two():
    sent = Sent()
    sent.world.node.commit(sent.first + 1)
    sent.world.node.truncate(sent.first + 2)
    sent.world.log.on_rolled_back(sent.first + 2)
    return [answer[0] for answer in sent.answers]


def test_a_disk_that_is_full_midway_leaves_the_first_part_and_says_unknown():
    assert roll_back_behind_two() == [PutStatus.UNKNOWN]


def test_planted_refusal_of_half_a_batch_is_found_here():
    with planted(BY_TESTS["half-a-batch-is-refused"]):
        assert roll_back_behind_two() == [PutStatus.DISK_FULL]
