"""Small configuration values by namespace and key (100, 101, 102, 219), kept in one JSON file.

Source: KVConfigManager, KVConfigSerializeWrapper (protocol.md 3.1).
"""

import msgspec

from remoting.protocol.bodies import KvTable
from remoting.protocol.errors import RemoteProtocolError
from remoting.protocol.tolerant_json import loads
from runtime.disk import Disk
from runtime.errors import FatalError

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
VALUES_MAX = 100_000


class KvConfig:
    """The values; written through to ``path`` at each change, or only in memory without one."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file if there is one. Errors: `FatalError` if it is no such file."""
        data = self._disk.read(self._path) if self._path else None
        if data is None:
            return
        try:
            value = loads(data)["configTable"]
            self._table = msgspec.convert(value, dict[str, dict[str, str]])
        except (RemoteProtocolError, msgspec.ValidationError, KeyError, TypeError) as error:
            raise FatalError(f"kvConfigPath={self._path}: no key-value file: {error}") from error

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KvTable | None:
        """Return all values of a namespace, None if there are none."""
        values = self._table.get(namespace)
        return KvTable(table=dict(values)) if values else None

    def put(self, namespace: str, key: str, value: str) -> bool:
        """Set a value; False if there are too many."""
        if sum(map(len, self._table.values())) >= VALUES_MAX:
            return False
        self._table.setdefault(namespace, {})[key] = value
        self._save()
        return True

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value if it is there."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        if self._path:
            self._disk.replace(self._path, msgspec.json.encode({"configTable": self._table}))
