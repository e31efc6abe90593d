"""The HA stream where controllers say who is master, as bytes, both ways. Pure.

Laid out as RocketMQ 5's::

    hello      16   state 1 i32, two flags i16 (0), id of the slave i64
    welcome    20   state 1 i32, bytes of what follows i32, end of the master's log i64, its epoch
                    i32; then for each epoch of its log: epoch i32, beginning i64
    report     12   state 2 i32, position up to which the slave has the log i64; the first one asks
                    for what lies behind it, 0 for all of it
    transfer   36   state 2 i32, bytes of what follows i32, their position i64, epoch i32, its
                    beginning i64, confirmed position i64; then bytes of the log

A transfer of no bytes is a heartbeat. The confirmed position says what all of the in-sync set has.
Source: AutoSwitchHAClient, AutoSwitchHAConnection of RocketMQ 5.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from store.ha.codec import BadStream, TransferDecoder
from store.ha.switch.epochs import EPOCH_MAX, BadEpochs, Epoch, Epochs, check
from store.limits import EPOCHS_MAX

HANDSHAKE: Final = 1
TRANSFER: Final = 2
HELLO: Final = Struct(">ihhq")
WELCOME: Final = Struct(">iiqi")
EPOCH: Final = Struct(">iq")
REPORT: Final = Struct(">iq")
HEADER: Final = Struct(">iiqiqq")
SLAVE_ID_MAX: Final = 2**31 - 1


class Welcome(NamedTuple):
    """What a master says first."""

    end: int
    """Where its log ends."""
    epoch: int
    """In which it is the master."""
    epochs: Epochs
    """Those of its log."""


def encode_hello(slave_id: int) -> bytes:
    """Return what a slave says first."""
    return HELLO.pack(HANDSHAKE, 0, 0, slave_id)


def encode_welcome(welcome: Welcome) -> bytes:
    """Return what a master answers to it."""
    body = b"".join(EPOCH.pack(*one) for one in welcome.epochs)
    return WELCOME.pack(HANDSHAKE, len(body), welcome.end, welcome.epoch) + body


def encode_report(position: int) -> bytes:
    """Return the report of a slave whose log reaches ``position``."""
    return REPORT.pack(TRANSFER, position)


class HelloDecoder:
    """What a master reads: a hello, then reports."""

    def __init__(self) -> None:
        self._rest = b""
        self._last = 0
        self.slave_id = 0
        """Who it is, 0 before it has said so."""

    def feed(self, data: bytes) -> int | None:
        """Return the last position reported in ``data``, None for none. Errors: `BadStream`."""
        self._rest += data
        if not self.slave_id:
            if len(self._rest) < HELLO.size:
                return None
            state, _, _, slave_id = HELLO.unpack_from(self._rest)
            self._rest = self._rest[HELLO.size :]
            if state != HANDSHAKE or not 1 <= slave_id <= SLAVE_ID_MAX:
                raise BadStream("it does not begin as a slave does that has its master from a"
                                " controller: is enableControllerMode=true set there?")  # fmt: skip
            self.slave_id = slave_id
        whole = len(self._rest) - len(self._rest) % REPORT.size
        found: int | None = None
        for state, position in REPORT.iter_unpack(self._rest[:whole]):
            if state != TRANSFER or position < self._last:
                raise BadStream(f"a slave cannot have the log up to {position}")
            found = self._last = position
        self._rest = self._rest[whole:]
        return found


class WelcomeDecoder(TransferDecoder):
    """What a slave reads: a welcome, then transfers; it keeps no more than a header.

    Args:
        on_welcome: called once, before any transfer is handed out; it may raise.
        on_confirmed: called with what each transfer says to be confirmed.
    """

    def __init__(
        self, on_welcome: Callable[[Welcome], None], on_confirmed: Callable[[int, int], None]
    ) -> None:
        super().__init__()
        self._on_welcome = on_welcome
        self._on_confirmed = on_confirmed
        self._wanted = WELCOME.size
        self._is_welcome = True

    def _take_head(self) -> bool:
        """Take the welcome, then heads. Errors: `BadStream`, and what ``on_welcome`` raises."""
        if self._is_welcome:
            self._take_welcome()
            return False
        state, size, position, epoch, _, confirmed = HEADER.unpack(self._head)
        if state != TRANSFER:
            raise BadStream(f"no transfer has {size} bytes at position {position}")
        is_heartbeat = self._begin(position, size)
        self._on_confirmed(epoch, confirmed)
        return is_heartbeat

    def _take_welcome(self) -> None:
        """Take the head, or the whole, of a welcome. Errors: `BadStream`."""
        state, size, end, epoch = WELCOME.unpack_from(self._head)
        most = EPOCHS_MAX * EPOCH.size
        if state != HANDSHAKE or not 0 <= size <= most or size % EPOCH.size or end < 0:
            raise BadStream("it does not begin as a master does that a controller has elected")
        if len(self._head) < WELCOME.size + size:
            self._wanted = WELCOME.size + size
            return
        body = bytes(self._head[WELCOME.size :])
        self._head.clear()
        self._is_welcome, self._wanted = False, HEADER.size
        try:
            epochs = check([Epoch(*one) for one in EPOCH.iter_unpack(body)])
        except BadEpochs as error:
            raise BadStream(f"its epochs: {error}") from error
        if not 1 <= epoch <= EPOCH_MAX or not epochs or epochs[-1].epoch != epoch:
            raise BadStream(f"it is master in epoch {epoch}, and has no such epoch")
        self._on_welcome(Welcome(end, epoch, epochs))
