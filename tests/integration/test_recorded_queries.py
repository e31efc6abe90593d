"""Messages by key in stores of a real RocketMQ 4.9.7: its index is taken over, or made anew."""

from __future__ import annotations

import asyncio
import shutil
import tarfile
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from ledgermq.remoting.protocol.message import decode_records
from store.index.codec import Layout, decode_header
from tests import fixtures
from tests.integration.plain_broker import Plain, plain

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = 400
SETTINGS = {"max_index_num": ENTRIES}
LAYOUT = Layout(5_000_000, ENTRIES)
NEVER = (1 << 63) - 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    for name in ("clean", "killed"):
        with tarfile.open(fixtures.store(f"master-4.9.7-{name}")) as archive:
            archive.extractall(root / name, filter="data")
    return root


def lines_by_key() -> dict[tuple[str, str], list[int]]:
    """Return the offsets in the log of the messages of each topic and key."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for line in fixtures.stored_messages("master-4.9.7"):
        if "queue" in line:
            continue
        properties = line["properties"]
        for key in (properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")):
            if key:
                found[line["topic"], key].add(line["commitLogOffset"])
    return {key: sorted(offsets) for key, offsets in found.items()}


async def query(broker: Plain, topic: str, key: str, **more: Any) -> list[int]:
    fields = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": NEVER}
    answer = await broker.ask(12, **{**fields, **more})
    if answer.code == 22:
        assert not answer.body
        return []
    assert answer.code == 0, answer
    return [one.physical_offset for one in decode_records(answer.body, check_crc=True)]


def index_files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


def used(path: Path) -> tuple[object, bytes, bytes]:
    """Return the header, the slots and the entries that count."""
    data = path.read_bytes()
    header = decode_header(data)
    assert header is not None
    first, end = LAYOUT.entry_at(1), LAYOUT.entry_at(header.next_number)
    return header, data[40:first], data[first:end]


async def check_all(broker: Plain, keys: dict[tuple[str, str], list[int]]) -> None:
    for (topic, key), offsets in keys.items():
        # A key may be that of half messages, too: these lie in a topic of their own.
        assert await query(broker, topic, key) == offsets[-64:], (topic, key)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_every_key_is_found_and_the_files_stay_those_of_rocketmq(
    recorded: Path, tmp_path: Path, name: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(recorded / name / "store", store)
    theirs = [used(path) for path in index_files(store)]
    keys = lines_by_key()
    assert len(keys) > 300

    async def main() -> None:
        for _ in range(2):
            async with plain(store, **SETTINGS) as broker:
                await check_all(broker, keys)
                assert await query(broker, "fx_none", "nobody") == []

    asyncio.run(main())
    ours = [used(path) for path in index_files(store)]
    assert ours == theirs


def test_without_its_index_a_store_gets_one_that_finds_everything(
    recorded: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(recorded / "killed" / "store", store)
    theirs = [used(path) for path in index_files(store)]
    shutil.rmtree(store / "index")

    async def main() -> None:
        async with plain(store, **SETTINGS) as broker:
            await check_all(broker, lines_by_key())

    asyncio.run(main())
    assert [used(path) for path in index_files(store)] == theirs


def test_what_is_added_is_found_beside_what_was_there(recorded: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(recorded / "killed" / "store", store)

    async def main() -> None:
        for times in range(3):
            async with plain(store, **SETTINGS) as broker:
                await broker.send("ours", 0, b"x", f"KEYS\x01k{times} all\x02UNIQ_KEY\x01U{times}")
                assert len(await query(broker, "ours", "all")) == times + 1
                for number in range(times + 1):
                    assert len(await query(broker, "ours", f"k{number}")) == 1
                    assert len(await query(broker, "ours", f"U{number}")) == 1
                    assert await query(broker, "ours", f"U{number}", _UNIQUE_KEY_QUERY="true")
                await check_all(broker, dict(list(lines_by_key().items())[::20]))

    asyncio.run(main())
