"""What the checker does grows with a history, not with the product of two of its tables."""

import time

from chaos.checker import History, check_history
from tests.unit.chaos.histories import GROUP, TAG, clean, delivery, drain, fault, send

SECOND_NS = 1_000_000_000


def owed_to_a_late_group(number: int) -> History:
    """Return a history of delayed messages that one group got and one that began later did not."""
    keys = range(1, number + 1)
    return clean(
        sends=[send(key, kind="delay", queue_id=None, queue_offset=None) for key in keys],
        deliveries=[delivery(key) for key in keys],
        drain=[
            drain(grp=group, min_off=begin, end_off=number + 1, read_to=number + 1)
            for group, begin in ((GROUP, 0), ("late", number + 1))
        ],
        replicas=[],
    )


def of_many_faults(number: int) -> History:
    """Return a history of as many faults as sends, each fault far from the next."""
    step = 100 * SECOND_NS
    return History(
        topic="t",
        group=GROUP,
        run_ids=frozenset({TAG}),
        sends=[
            send(key, t_inv=(at := key * step + 50 * SECOND_NS), t_cmp=at + 5)
            for key in range(number)
        ],
        deliveries=[delivery(key) for key in range(number)],
        drain=[],
        replicas=[],
        faults=[
            fault(
                f"f{key}",
                "pause" if key % 10 else "kill",
                t_on0=at,
                t_on1=at + 1,
                t_off0=at + 2,
                t_off1=at + 3,
            )
            for key in range(number)
            for at in [key * step]
        ],
    )


def seconds(history: History) -> float:
    start = time.process_time()
    check_history(history)
    return time.process_time() - start


def test_messages_that_waited_and_that_a_late_group_is_not_owed():
    found = check_history(owed_to_a_late_group(30)).results["A1"]
    assert found.details["not_owed_by_a_late_group"] == 30
    assert seconds(owed_to_a_late_group(8000)) < 10 * seconds(owed_to_a_late_group(2000))


def test_service_around_many_faults():
    found = check_history(of_many_faults(30)).results
    assert found["A41"].details == {"worst_ms": 50_000 + 5e-6}
    assert found["A47"].summary == "too few effective faults: kill: 0 of 1, pause: 0 of 1"
    assert found["A60"].details == {"heals": 30, "worst_ms": (50 * SECOND_NS + 2) / 1e6}
    assert found["A61"].details == {"quiet": 30, "acknowledged": 30}
    assert seconds(of_many_faults(4000)) < 10 * seconds(of_many_faults(1000))
