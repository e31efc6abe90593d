"""Which messages of a store are printed."""

from base64 import b64decode

import pytest

from store.offline.folder import open_folder
from store.offline.messages import Dump, Selection
from tests.unit.store.offline.stores import PlainStore, write


@pytest.mark.parametrize("with_queues", [True, False])
def test_a_range_of_a_topic_that_was_made_again_has_its_new_messages(tmp_path, with_queues):
    store = PlainStore(30)
    store.queues["t0", 0] = []  # deleted, and made again
    for number in range(30, 60):
        store.add(number)
    files = store.files()
    write(tmp_path, {n: files[n] for n in files if with_queues or not n.startswith("consume")})
    chosen = Selection(topic="t0", queue_id=0, last=2)
    bodies = [row["bodyBase64"] for row in Dump(open_folder(str(tmp_path)), chosen).message_rows()]
    own = [one for one in store.records if (one.topic, one.queue_id) == ("t0", 0)]
    wanted = [one.body for one in own if one.queue_offset <= 2]
    assert len(wanted) == 6
    assert [b64decode(body) for body in bodies] == wanted
