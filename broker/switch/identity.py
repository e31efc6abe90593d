"""Which replica a directory is: its id, and the code by which controllers know it again.

Written before the id is asked for, so that a broker that dies meanwhile asks for the same one, and
once more when it is granted.
RocketMQ 5 has two files for this, ``brokerIdentity`` and ``brokerIdentity-temp``, without the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_replaced

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Disk

IDENTITY_FILE: Final = "brokerIdentity.json"
VERSION: Final = 1
_BYTES_MAX: Final = 4096


class Identity(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One replica."""

    cluster_name: str
    broker_name: str
    broker_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    check_code: str
    is_granted: bool = False
    """Whether the controllers have said that the id is this directory's."""
    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)] = VERSION


def load_identity(directory: str, disk: Disk, cluster: str, name: str) -> Identity | None:
    """Return what a directory says, None if it says nothing yet. Errors: `FatalError`."""
    path = f"{directory}/{IDENTITY_FILE}"
    check_replaced(disk.size, path)
    try:
        data = disk.read(path)
        if data is None:
            return None
        found = msgspec.json.decode(data[:_BYTES_MAX], type=Identity)
    except OSError as error:
        raise FatalError(f"{path} cannot be read: {error}") from error
    except NOT_DECODED as error:
        raise FatalError(
            f"{path} is damaged: {error}. Restore it; or move the whole directory away, and let"
            " this broker begin anew as a slave"
        ) from error
    if (found.cluster_name, found.broker_name) != (cluster, name):
        raise FatalError(
            f"{path} is that of {found.broker_name} in {found.cluster_name}, and brokerName={name},"
            f" brokerClusterName={cluster} are set: is this the directory of another broker?"
        )
    return found


def save_identity(directory: str, disk: Disk, identity: Identity) -> None:
    """Write it; it is durable when this returns. Errors: `FatalError`."""
    path = f"{directory}/{IDENTITY_FILE}"
    try:
        disk.make_directories(directory)
        disk.replace(path, msgspec.json.format(msgspec.json.encode(identity)))
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {error}", EXIT_ENVIRONMENT) from error
