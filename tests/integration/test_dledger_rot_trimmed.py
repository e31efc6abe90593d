"""A replica whose damaged entries no peer has any more: a peer's snapshot stands for them."""

import contextlib

import pytest

from dledger.errors import RottenEntry
from dledger.repair import Repairer
from tests.integration.dledger_group import SEGMENT
from tests.integration.faulty_disk import flip
from tests.integration.test_dledger_snapshot import STATE, play, trim


def damage(group, node, index):
    position = node.entry(index)[0]
    base = position - position % SEGMENT
    flip(group.path / node.self_id / "data" / f"{base:020}", position - base + 60)
    with contextlib.suppress(RottenEntry):
        node.body_view(index)


async def others_have_trimmed(group, *, leads):
    """A node, leader or not, has two damaged entries that the others have trimmed."""
    leader = await group.append(3000)
    await group.settle()
    node = leader if leads else next(n for n in group.nodes.values() if n is not leader)
    others = [other for other in group.nodes.values() if other is not node]
    plans = [await trim(other) for other in others]
    kept = {i: bytes(node.body_view(i)) for i in range(plans[0].first_index, node.end_index + 1)}
    damage(group, node, 10)
    damage(group, node, 700)
    await group.until(lambda: node.first_index == plans[0].first_index)
    assert not node._store.rot.damaged
    ((meta, state),) = group.listeners[node.self_id].installed
    assert (meta.id.last_index, state) == (plans[0].first_index - 1, STATE)
    assert {i: bytes(node.body_view(i)) for i in kept} == kept, "what comes behind stays"
    await group.append(100)
    await group.settle()
    await group.stop()
    await group.start()
    again = group.nodes[node.self_id]
    assert again.first_index == plans[0].first_index
    assert again.snapshot_state() == STATE
    await group.append(100)
    await group.settle()


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_damage_that_the_others_have_trimmed_is_replaced_by_a_snapshot(tmp_path, leads):
    play(tmp_path, lambda group: others_have_trimmed(group, leads=leads))


def test_a_peer_that_answers_nothing_instead_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(Repairer, "_send_chunk", lambda self, *chunk: None)
    with pytest.raises(TimeoutError):
        play(tmp_path, lambda group: others_have_trimmed(group, leads=False))
