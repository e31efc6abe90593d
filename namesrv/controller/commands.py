"""The commands of the controllers' log, what each is answered, and their encoding. Pure.

The controller that leads puts what it alone knows (who is alive, who has most) into the command,
so that all apply it alike. The encoding is JSON with a version; a build refuses what a newer one
wrote, and does not guess.
Source: EventMessage and its kinds, ResponseCode 2000 to 2016 of RocketMQ 5.
"""

from enum import IntEnum
from typing import Annotated, Final

import msgspec

from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from namesrv.controller.limits import (
    COMMAND_BYTES_MAX,
    EPOCH_MAX,
    REPLICA_ID_MAX,
    REPLICAS_MAX,
    TEXT_LENGTH_MAX,
)
from namesrv.controller.state import TEXT_PATTERN, Group

COMMAND_VERSION: Final = 1

Text = Annotated[str, msgspec.Meta(max_length=int(TEXT_LENGTH_MAX), pattern=TEXT_PATTERN)]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=int(TEXT_LENGTH_MAX), pattern=TEXT_PATTERN)
]
ReplicaId = Annotated[int, msgspec.Meta(ge=1, le=int(REPLICA_ID_MAX))]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=int(EPOCH_MAX))]
Ids = Annotated[tuple[ReplicaId, ...], msgspec.Meta(max_length=int(REPLICAS_MAX))]


class Code(IntEnum):
    """How a command ended, in RocketMQ's numbers."""

    SUCCESS = ResponseCode.SUCCESS
    FENCED_MASTER_EPOCH = ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    FENCED_IN_SYNC_EPOCH = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    INVALID_MASTER = ResponseCode.CONTROLLER_INVALID_MASTER
    INVALID_REPLICAS = ResponseCode.CONTROLLER_INVALID_REPLICAS
    MASTER_NOT_AVAILABLE = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    INVALID_REQUEST = ResponseCode.CONTROLLER_INVALID_REQUEST
    BROKER_NOT_ALIVE = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    NOT_LEADER = ResponseCode.CONTROLLER_NOT_LEADER
    GROUP_UNKNOWN = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    INVALID_REMOVAL = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    NOT_REGISTERED = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    MASTER_STILL_EXISTS = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    ELECTION_FAILED = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    ID_INVALID = ResponseCode.CONTROLLER_BROKER_ID_INVALID


class Outcome(msgspec.Struct, frozen=True):
    """What a command did: the same on every controller."""

    code: Code
    remark: str = ""
    group: Group | None = None
    """The group afterwards, None if there is none."""
    changed: bool = False
    """Whether the group is another one than before."""


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    group: Name
    """The name of the brokers."""


class ApplyId(_Command, frozen=True, kw_only=True):
    """A directory without an id asks for one: the next of its group, which it may then keep."""

    cluster: Name
    id: ReplicaId
    check_code: Name


class Register(_Command, frozen=True, kw_only=True):
    """A broker has started, and tells where it is. It is no master before it is elected."""

    cluster: Name
    id: ReplicaId
    check_code: Text = ""
    """Empty: not compared (RocketMQ's brokers send none)."""
    address: Name
    ha_address: Text = ""
    other_alive: bool = False
    """Whether the broker of this id was heard of lately, at another address."""
    may_lack_end: bool = False
    """Whether it may have lost the end of its log since it last confirmed something."""
    last_epoch: Epoch = 0
    """Then: the last epoch that its directory knows of."""


class AlterInSync(_Command, frozen=True, kw_only=True):
    """The master says who has all that it acknowledges."""

    master: ReplicaId
    master_epoch: Epoch
    in_sync_epoch: Epoch
    in_sync: Ids
    alive: Ids
    """Who was heard of lately."""


class Elect(_Command, frozen=True, kw_only=True):
    """A master is wanted, in the place of that of ``master_epoch``."""

    master_epoch: Epoch
    """The epoch that ends; another one has ended already."""
    alive: Ids
    """Who was heard of lately, who has most first."""
    wanted: Annotated[int, msgspec.Meta(ge=0, le=int(REPLICA_ID_MAX))] = 0
    """Who should be it, 0 for whoever has most."""
    designated: bool = False
    """Whether an administrator asks: nobody else than ``wanted`` then, and a living master goes."""
    unclean: bool = False
    """Whether one that may lack acknowledged messages will do, if no other is alive."""


class Remove(_Command, frozen=True, kw_only=True):
    """An administrator takes replicas away that do not come back."""

    ids: Ids
    alive: Ids
    also_living: bool = False


Command = ApplyId | Register | AlterInSync | Elect | Remove


class BadCommand(ValueError):  # noqa: N818  # says what is
    """Bytes that are no command, or one with a value that cannot be; the message says which."""


class _Encoded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    command: Command


class _Version(msgspec.Struct, frozen=True):
    version: int


def encode_command(command: Command) -> bytes:
    """Return its text. Errors: `BadCommand` if it holds a value that would not be read back."""
    data = msgspec.json.encode(_Encoded(COMMAND_VERSION, command))
    if decode_command(data) != command:
        raise BadCommand(f"{command} is not read as it is written")
    return data


def decode_command(data: bytes) -> Command:
    """Return the command that a text holds. Errors: `BadCommand`."""
    if len(data) > COMMAND_BYTES_MAX:
        raise BadCommand(f"{len(data)} bytes, more than {COMMAND_BYTES_MAX}")
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != COMMAND_VERSION:
            raise BadCommand(f"version {version}, and this build knows {COMMAND_VERSION}")
        return msgspec.json.decode(data, type=_Encoded).command
    except NOT_DECODED as error:
        raise BadCommand(str(error)) from error
