"""Which part of a log was written under which master: epochs, each with where it begins. Pure.

A list of epochs belongs to a log that it describes up to the log's end: an entry that begins at the
end covers nothing of this log yet, and one behind the end does not belong to this log (`clip`
leaves both out). Two logs are the same up to the end of the last epoch that both lists
have, with the same beginning (`consistent_point`): one controller gives an epoch to one master, so
what lies in an epoch, and before its beginning, comes from one log.

The file is RocketMQ 5's ``epochFileCheckpoint``: how many lines, the CRC-32 of them (0: not
compared), then ``epoch-beginning``, a line each.
Source: EpochFileCache, CheckpointFile of RocketMQ 5; docs/adr/0020.
"""

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from store.limits import EPOCHS_MAX

EPOCH_FILE: Final = "epochFileCheckpoint"
EPOCH_MAX: Final = 2**31 - 1
POSITION_MAX: Final = 2**63 - 1
_CRC_MASK: Final = 0x7FFFFFFF
_LINE_CHARACTERS_MAX: Final = 32


class Epoch(NamedTuple):
    """The time of one master."""

    epoch: int
    start: int
    """Position at which the log ended when it began."""


Epochs = tuple[Epoch, ...]


class BadEpochs(ValueError):  # noqa: N818  # says what is
    """Something that is no list of epochs; the message says why."""


def check(epochs: Sequence[Epoch]) -> Epochs:
    """Return a list that can be: epochs rise, their beginnings never fall. Errors: `BadEpochs`."""
    if len(epochs) > EPOCHS_MAX:
        raise BadEpochs(f"{len(epochs)} epochs, more than {EPOCHS_MAX:d}")
    last = Epoch(0, 0)
    for one in epochs:
        if not last.epoch < one.epoch <= EPOCH_MAX or not last.start <= one.start <= POSITION_MAX:
            raise BadEpochs(f"epoch {one.epoch} from {one.start} on cannot follow {last.epoch}")
        last = one
    return tuple(epochs)


def clip(epochs: Epochs, end: int) -> Epochs:
    """Return those of which a log that ends at ``end`` has something."""
    return tuple(one for one in epochs if one.start < end)


def begin_epoch(epochs: Epochs, epoch: int, end: int) -> Epochs:
    """Return the list of a log that ends at ``end`` and goes on in ``epoch``. Errors: `BadEpochs`.

    Epochs in which nothing was written go; so do the oldest where there are too many. Of an empty
    log the first one stays: by it a former master, whose log is a tail from its very beginning,
    knows that this log has nothing of that.
    """
    kept = clip(epochs, end)[-(EPOCHS_MAX - 1) :] or _begun(epochs, end)[:1]
    return check((*kept, Epoch(epoch, end)))


def _begun(epochs: Epochs, end: int) -> Epochs:
    """Return those that had begun when a log was as long as it is."""
    return tuple(one for one in epochs if one.start <= end)


def consistent_point(own: Epochs, own_end: int, other: Epochs, other_end: int) -> int | None:
    """Return up to where two logs are surely the same; None if no epoch shows that."""
    ends = _ends(_begun(other, other_end), other_end)
    for one, end in reversed(_ends(_begun(own, own_end), own_end).items()):
        if one in ends:
            return min(end, ends[one])
    return None


def _ends(epochs: Epochs, log_end: int) -> dict[Epoch, int]:
    """Return where each epoch ends: where the next one begins."""
    starts = (*(one.start for one in epochs[1:]), log_end)
    return dict(zip(epochs, starts, strict=False))


def encode_epochs(epochs: Epochs) -> bytes:
    """Return the text of the file."""
    lines = "".join(f"{one.epoch}-{one.start}\n" for one in epochs).encode()
    return b"%d\n%d\n%b" % (len(epochs), zlib.crc32(lines) & _CRC_MASK, lines)


def decode_epochs(data: bytes) -> Epochs:
    """Return the epochs of a file. Errors: `BadEpochs`."""
    if len(data) > (EPOCHS_MAX + 2) * _LINE_CHARACTERS_MAX:
        raise BadEpochs(f"{len(data)} bytes are too many")
    head, _, rest = data.partition(b"\n")
    crc, _, lines = rest.partition(b"\n")
    count, wanted = _number(head), _number(crc)
    if wanted not in (0, zlib.crc32(lines) & _CRC_MASK):
        raise BadEpochs("its lines do not have the CRC that it states")
    found = []
    for line in lines.splitlines():
        epoch, _, start = line.partition(b"-")
        found.append(Epoch(_number(epoch), _number(start)))
    if len(found) != count:
        raise BadEpochs(f"{len(found)} epochs, and it states {count}")
    return check(found)


def _number(text: bytes) -> int:
    text = text.strip()
    if not text.isdigit() or len(text) > len(str(POSITION_MAX)):
        raise BadEpochs(f"{text[:_LINE_CHARACTERS_MAX]!r} is not a number")
    return int(text)
