"""Small configuration values by namespace and key (100, 101, 102, 219), kept in one JSON file.

Source: KVConfigManager, KVConfigSerializeWrapper (spec/wire.md 3.1).
"""

import msgspec

from ledgermq.remoting.protocol.bodies import KvTable
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import FILE, NOT_DECODED, loads
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.regular import check_replaced
from namesrv.limits import KV_BYTES_MAX, KV_NAMES_MAX, KV_VALUE_BYTES_MAX

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class KvConfig:
    """The values; written to ``path`` before a change counts, or only in memory without one.

    Errors: `OSError` of a change that could not be saved; then all is as before.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all values with their names; of a long namespace once for each key."""
        return self._bytes

    def load(self) -> None:
        """Read the file if there is one. Errors: `FatalError` if it is no such file."""
        if self._path:
            check_replaced(self._disk.size, self._path)
        data = self._disk.read(self._path) if self._path else None
        if data is None:
            return
        try:
            value = loads(data, FILE)["configTable"]
            self._table = msgspec.convert(value, dict[str, dict[str, str]])
        except (*NOT_DECODED, RemoteProtocolError, KeyError, TypeError) as error:
            raise FatalError(f"kvConfigPath={self._path}: no key-value file: {error}") from error
        self._bytes = sum(
            _bytes_of(namespace, key, value)
            for namespace, values in self._table.items()
            for key, value in values.items()
        )

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KvTable | None:
        """Return all values of a namespace, None if there are none."""
        values = self._table.get(namespace)
        return KvTable(table=dict(values)) if values else None

    def put(self, namespace: str, key: str, value: str) -> str | None:
        """Set a value; return why it is refused, None if it is not."""
        if not (0 < len(namespace) <= KV_NAMES_MAX and 0 < len(key) <= KV_NAMES_MAX):
            return f"namespace and key have 1 to {KV_NAMES_MAX} characters"
        if len(value.encode("utf-8", "replace")) > KV_VALUE_BYTES_MAX:
            return f"the value has more than {KV_VALUE_BYTES_MAX} bytes"
        old = self._table.get(namespace, {}).get(key)
        grown = _bytes_of(namespace, key, value)
        grown -= 0 if old is None else _bytes_of(namespace, key, old)
        if grown > 0 and self._bytes + grown > KV_BYTES_MAX:
            return f"all values would have more than {KV_BYTES_MAX} bytes"
        values = {**self._table.get(namespace, {}), key: value}
        self._replace({**self._table, namespace: values})
        self._bytes += grown
        return None

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value if it is there, and a namespace with its last one."""
        values = dict(self._table.get(namespace, {}))
        value = values.pop(key, None)
        if value is None:
            return
        table = {**self._table, namespace: values}
        if not values:
            del table[namespace]
        self._replace(table)
        self._bytes -= _bytes_of(namespace, key, value)

    def _replace(self, table: dict[str, dict[str, str]]) -> None:
        """Save a table, then serve it: what is served would be gone at the next start."""
        if self._path:
            self._disk.replace(self._path, msgspec.json.encode({"configTable": table}))
        self._table = table


def _bytes_of(namespace: str, key: str, value: str) -> int:
    return sum(len(text.encode("utf-8", "replace")) for text in (namespace, key, value))
