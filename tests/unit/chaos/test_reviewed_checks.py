"""What readers of the checks found: sound histories that were accused, and anomalies that passed."""

from chaos.checker import check_history
from tests.unit.chaos.histories import GROUP, TOPIC, clean, send


def judged(check, **more):
    """Return what a check finds in the clean history with some parts of it replaced."""
    found = check_history(clean(**more)).results[check]
    return found.verdict, found.count


def ack(kind, **more):
    return {
        "grp": GROUP, "kind": kind, "topic": TOPIC, "queue_id": 0, "value_offset": None,
        "outcome": "ok", "t_inv": 2_000, "t_cmp": 2_001, "durable": None, "msg_key": None,
        "consumer": "c0", "reconsume": None, "delay_ms": None,
    } | more  # fmt: skip


def test_topic_whose_only_epoch_is_the_first_was_not_made_anew():
    """Some count from 1: what is asked of offsets is asked of theirs, too."""
    sends = [send(key, epoch=1) for key in (1, 2, 3)]
    beyond = [ack("commit", value_offset=50)]
    assert judged("A19", sends=sends, acks=beyond) == ("invalid", 1)
    assert judged("A19", sends=[*sends, send(4, epoch=2)], acks=beyond) == ("valid", 0)
