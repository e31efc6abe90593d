"""Key-value configuration over a disk in a dict."""

import errno

import pytest

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv import kv_config
from namesrv.kv_config import KvConfig


class FakeDisk:
    """Files in a dict."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def replace(self, path: str, data: bytes | bytearray) -> None:
        self.files[path] = data

    def size(self, path: str) -> int | None:
        return len(self.files[path]) if path in self.files else None


def test_values_survive_in_the_file():
    disk = FakeDisk()
    values = KvConfig(disk, "kv.json")
    values.load()
    assert not values.put("ns", "k", "v")
    assert not values.put("ns", "l", "w")
    values.delete("ns", "l")
    values.delete("ns", "l")
    assert disk.files["kv.json"] == b'{"configTable":{"ns":{"k":"v"}}}'
    again = KvConfig(disk, "kv.json")
    again.load()
    assert again.get("ns", "k") == "v"
    assert again.table("ns").table == {"k": "v"}
    assert again.get("ns", "l") is None
    assert again.table("other") is None


def test_without_a_path_nothing_is_written():
    disk = FakeDisk()
    values = KvConfig(disk, "")
    values.load()
    values.put("ns", "k", "v")
    assert values.get("ns", "k") == "v"
    assert disk.files == {}


def test_the_number_of_values_is_bounded(monkeypatch):
    monkeypatch.setattr(kv_config, "KV_BYTES_MAX", 4)
    values = KvConfig(FakeDisk(), "")
    assert not values.put("ns", "k", "v")
    assert "4 bytes" in values.put("ns", "l", "v")
    assert not values.put("ns", "k", "w")
    assert values.used_bytes == 4


def test_a_namespace_goes_with_its_last_value():
    disk = FakeDisk()
    values = KvConfig(disk, "kv.json")
    for number in range(100):
        values.put(f"ns{number}", "k", "v")
        values.delete(f"ns{number}", "k")
    assert disk.files["kv.json"] == b'{"configTable":{}}'
    assert values.used_bytes == 0


class FullDisk(FakeDisk):
    """Refuses while it is full."""

    is_full = False

    def replace(self, path: str, data: bytes | bytearray) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "full")
        super().replace(path, data)


def assert_unsaved_is_unserved():
    disk = FullDisk()
    values = KvConfig(disk, "kv.json")
    values.put("ns", "k", "v")
    used, saved = values.used_bytes, dict(disk.files)
    disk.is_full = True
    for change in (
        lambda: values.put("ns", "k", "new"),
        lambda: values.put("ns", "l", "new"),
        lambda: values.put("other", "k", "new"),
        lambda: values.delete("ns", "k"),
    ):
        with pytest.raises(OSError, match="full"):
            change()
        assert values.table("ns").table == {"k": "v"}
        assert values.table("other") is None
        assert (values.used_bytes, disk.files) == (used, saved)
    disk.is_full = False
    values.put("ns", "l", "new")
    values.delete("ns", "k")
    assert disk.files["kv.json"] == b'{"configTable":{"ns":{"l":"new"}}}'


def test_what_could_not_be_saved_is_not_served():
    assert_unsaved_is_unserved()


def test_a_planted_value_that_is_served_unsaved_is_seen():
    with planted(BY_TESTS["kv-served-unsaved"]), pytest.raises(AssertionError):
        assert_unsaved_is_unserved()


def test_a_planted_namespace_that_stays_is_seen():
    with planted(BY_TESTS["kv-namespace-stays"]), pytest.raises(AssertionError):
        test_a_namespace_goes_with_its_last_value()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"configTable":{"a":1}}'])
def test_another_file_is_refused(data):
    with pytest.raises(FatalError, match=r"kvConfigPath=kv\.json"):
        KvConfig(FakeDisk({"kv.json": data}), "kv.json").load()
