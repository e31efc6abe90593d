"""Whether a registration is one that can be believed, as far as it can be told by itself.

Pure. What the table holds already, and who lives, is not known here.
Source: spec/wire.md 3.2; RocketMQ TopicValidator.
"""

import re
from typing import Final

from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.errors import InvalidHeader, LocalProtocolError
from ledgermq.remoting.protocol.headers import RegisterBrokerHeader
from ledgermq.remoting.protocol.hosts import parse_address
from namesrv.limits import (
    ADDRESS_LENGTH_MAX,
    BROKER_ID_MAX,
    NAME_LENGTH_MAX,
    QUEUES_MAX,
    RAFT_TERM_MAX,
)

NO_TERM: Final = -1
PERM_MAX: Final = 7
_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}\Z")
"""RocketMQ 5 lets retry topics be as long as the names of groups."""
_INT32_MAX: Final = 2**31 - 1


def check_header(header: RegisterBrokerHeader) -> None:
    """Refuse a registration whose header cannot be true. Errors: `InvalidHeader`."""
    check_name("brokerName", header.broker_name)
    check_name("clusterName", header.cluster_name)
    check_address("brokerAddr", header.broker_addr)
    if header.ha_server_addr:
        check_address("haServerAddr", header.ha_server_addr)
    if not 0 <= header.broker_id <= BROKER_ID_MAX:
        raise InvalidHeader(f"brokerId {header.broker_id} is not within 0 to {BROKER_ID_MAX}")
    if not NO_TERM <= header.raft_term <= RAFT_TERM_MAX:
        raise InvalidHeader(f"raftTerm {header.raft_term} is not within -1 to {RAFT_TERM_MAX}")


def check_name(field: str, name: str) -> None:
    """Refuse a name that is empty, long, or would not show as it is. Errors: `InvalidHeader`."""
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise InvalidHeader(f"{field} has {len(name)} characters, 1 to {NAME_LENGTH_MAX} are taken")
    if not name.isprintable() or " " in name:
        raise InvalidHeader(f"{field} {name!r} has a space or a character that does not print")


def check_address(field: str, address: str) -> None:
    """Refuse what is not ``host:port``. Errors: `InvalidHeader`."""
    if len(address) > ADDRESS_LENGTH_MAX:
        raise InvalidHeader(f"{field} has {len(address)} characters, {ADDRESS_LENGTH_MAX} may be")
    check_name(field, address[:NAME_LENGTH_MAX])
    try:
        parse_address(address)[0].encode("idna")  # as who connects does, or cannot
    except (LocalProtocolError, ValueError) as error:
        raise InvalidHeader(f"{field}: {error}") from error


def is_sound_topic(name: str, config: TopicConfig) -> bool:
    """Tell whether a topic of a registration can be shown in a route."""
    return (
        _TOPIC.match(name) is not None
        and 0 <= config.perm <= PERM_MAX
        and 0 <= config.read_queue_nums <= QUEUES_MAX
        and 0 <= config.write_queue_nums <= QUEUES_MAX
        and 0 <= config.topic_sys_flag <= _INT32_MAX
    )
