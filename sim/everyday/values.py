"""Values that somebody keeps at name servers: put, read, and deleted, at each by itself.

What was answered holds, also once the name server was started again. Of a value whose change was
not answered nobody knows, and nobody asks for it again. Source: spec/wire.md 3.1; RocketMQ
KVConfigManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from ledgermq.remoting.protocol.signing import NAMESRV_AUDIENCE, KeyCredentials, sign
from sim.clients.wire import RawConnection
from sim.layout import PEER_KEY

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

OTHER: Final = "A44 a value that a name server keeps otherwise than it was told"
NAMESPACE: Final = "EVERYDAY"
KEYS: Final = 3
READ_P: Final = 0.4
DELETED_P: Final = 0.5


class Values:
    """One client that keeps them."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._asked = 0
        self._known: dict[tuple[str, str], str | None] = {}
        """By name server and key: what it was told last, None for nothing."""
        self._ages: dict[tuple[str, int], int] = {}
        """How often a key was given up for another one."""
        self._away: set[str] = set()
        """Name servers that could not be reached, and were not asked since."""

    async def start(self) -> None:
        """Nothing is to be done before."""

    async def step(self, rng: SplitRng) -> None:
        """Put, read or delete one value at one name server; read all once it was away."""
        server = rng.split("server").choice(self._life.namesrvs)
        if server in self._away:
            await self._read_all(server)
            return
        number = rng.split("key").randint(0, KEYS - 1)
        key = f"{self._life.name}-{number}-{self._ages.get((server, number), 0)}"
        known = self._known.get((server, key))
        fields = {"namespace": NAMESPACE, "key": key}
        if rng.split("read").chance(READ_P):
            await self._read(server, key)
            return
        value, code = None, RequestCode.DELETE_KV_CONFIG
        if known is None or not rng.split("deleted").chance(DELETED_P):
            value, code = f"value {self._asked}", RequestCode.PUT_KV_CONFIG
            fields["value"] = value
        told = await self._ask(server, code, fields)
        if server in self._away:
            return  # it was not asked
        if told is None or told.code != ResponseCode.SUCCESS:
            self._ages[server, number] = self._ages.get((server, number), 0) + 1
            self._known.pop((server, key), None)
        else:
            self._known[server, key] = value
            self._life.count("values_changed")

    async def _read_all(self, server: str) -> None:
        """Read all that is known of a name server, if it is back."""
        self._away.discard(server)
        for key in [key for one, key in self._known if one == server]:
            await self._read(server, key)

    async def _read(self, server: str, key: str) -> None:
        fields = {"namespace": NAMESPACE, "key": key}
        self._check(server, key, await self._ask(server, RequestCode.GET_KV_CONFIG, fields))

    def _check(self, server: str, key: str, told: RemotingCommand | None) -> None:
        if told is None or told.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            return
        found = None
        if told.code == ResponseCode.SUCCESS:
            found = (told.ext_fields or {}).get("value")
        known = self._known.get((server, key))
        self._life.count("values_read")
        if found != known:
            self._life.report(OTHER, f"{server} has {found!r} for {key}, and was told {known!r}")

    async def _ask(
        self, server: str, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand | None:
        connection = await RawConnection.dial(server, self._life.machine.address)
        if connection is None:
            self._away.add(server)
            return None
        self._asked += 1
        command = sign(
            RemotingCommand(code, opaque=self._asked, ext_fields=fields),
            KeyCredentials(PEER_KEY.encode(), self._life.name),
            now_ms=self._life.machine.clock.wall_ms(),
            nonce=f"{self._life.name}-values-{self._asked}",
            audience=NAMESRV_AUDIENCE,
        )
        answer = await connection.ask(b"".join(encode_command(command)), self._asked)
        connection.close()
        return answer

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
