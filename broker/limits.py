"""What clients may make a broker keep: tables, sends that wait, what is remembered. Pure."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

TOPICS_BYTES_MAX: Final = Limit(
    7 * 1024 * 1024, "topics, as a registration has them", Unit.BYTES, Scope.GROUP,
    "2, and the topic is not created",
)  # fmt: skip
"""It keeps a registration, with the topics that are being created, below what name servers take
(`ledgermq.remoting.protocol.limits.REGISTER_BYTES_MAX`)."""
TOPIC_QUEUES_MAX: Final = Limit(
    65_536, "queues of a topic", Unit.COUNT, Scope.REQUEST, "1, and the topic is as it was"
)
GROUPS_MAX: Final = Limit(
    100_000, "consumer groups", Unit.COUNT, Scope.GROUP, "2, and the group is not created"
)
OFFSETS_BYTES_MAX: Final = Limit(
    64 * 1024 * 1024, "consumer offsets", Unit.BYTES, Scope.GROUP,
    "2, and the offset is not kept; one consumer group gets a quarter of what is free",
)  # fmt: skip
LOCKS_MAX: Final = Limit(
    200_000,
    "queue locks",
    Unit.COUNT,
    Scope.GROUP,
    "0, and it is not among those granted; one consumer group gets a quarter of what is free",
)
LOCK_QUEUES_MAX: Final = Limit(
    10_000, "queues in a lock request", Unit.COUNT, Scope.REQUEST, "1, and nothing is locked"
)
STATE_ENTRY_BYTES_MAX: Final = Limit(
    6 * 1024, "entry of replicated state", Unit.BYTES, Scope.REQUEST, "split into several"
)
"""The smallest segment that a log may have holds several of them (mappedFileSizeCommitLog)."""

TOLD_BYTES_MAX: Final = Limit(
    65_536, "delays, or state, that a master tells its slave", Unit.BYTES, Scope.REQUEST,
    "nothing that it says is taken",
)  # fmt: skip
TOLD_ROW_BYTES_MAX: Final = Limit(
    2 * 1024 * 1024, "a row of a table that a master tells its slave", Unit.BYTES, Scope.REQUEST,
    "nothing that it says is taken",
)  # fmt: skip
"""Holds offsets of as many queues as a topic may have."""

NEW_GROUPS_OF_ADDRESS_MAX: Final = Limit(
    1_000, "new consumer groups in heartbeats, one more a second", Unit.COUNT, Scope.ADDRESS,
    "2, and the group is not created",
)  # fmt: skip
NEW_GROUPS_MAX: Final = Limit(
    1_000, "new consumer groups in other requests, ten more a second", Unit.COUNT, Scope.PROCESS,
    "pulls are served without; commits get 2",
)  # fmt: skip

CREATIONS_MAX: Final = Limit(
    1_024, "topics or groups being created", Unit.COUNT, Scope.PROCESS, "2, and nothing is stored"
)
PARKED_MAX: Final = Limit(
    10_000, "sends that wait for their topic", Unit.COUNT, Scope.PROCESS, "2, and nothing is stored"
)
PARKED_BYTES_MAX: Final = Limit(
    64 * 1024**2,
    "sends that wait for their topic, in bytes",
    Unit.BYTES,
    Scope.PROCESS,
    "2, and nothing is stored",
)
PARKED_TOPIC_BYTES_MAX: Final = Limit(
    16 * 1024**2,
    "sends that wait for one topic, in bytes",
    Unit.BYTES,
    Scope.PROCESS,
    "2, and nothing is stored",
)
PLANS_MAX: Final = Limit(
    512, "remembered property names", Unit.COUNT, Scope.PROCESS, "forgotten, worked out again"
)
PLAN_NAMES_MAX: Final = Limit(
    32, "names that are remembered together", Unit.COUNT, Scope.REQUEST, "worked out each time"
)
SUFFIXES_MAX: Final = Limit(
    1_024, "remembered batch properties", Unit.COUNT, Scope.PROCESS, "forgotten, worked out again"
)
TAGS_REMEMBERED_MAX: Final = Limit(
    4_096, "remembered tags", Unit.COUNT, Scope.PROCESS, "forgotten, worked out again"
)
REMEMBERED_BYTES_MAX: Final = Limit(
    512, "a text that is remembered", Unit.BYTES, Scope.REQUEST, "worked out each time"
)
ANSWER_ROWS_MAX: Final = Limit(
    16_384, "rows of an answer to a tool", Unit.COUNT, Scope.REQUEST, "1, and no rows"
)
ANSWER_BYTES_MAX: Final = Limit(
    15 * 1024**2, "answer to a tool", Unit.BYTES, Scope.REQUEST, "1, and no rows"
)
"""RocketMQ's clients take no larger frame than 16 MiB."""
WALKS_MAX: Final = Limit(2, "long answers being made", Unit.COUNT, Scope.PROCESS, "the others wait")
WALKS_WAITING_MAX: Final = Limit(
    64, "requests that wait while long answers are made", Unit.COUNT, Scope.PROCESS,
    "2, and no rows",
)  # fmt: skip
TRAFFIC_NAMES_MAX: Final = Limit(
    10_000, "topics, and topics of groups, whose traffic is counted", Unit.COUNT, Scope.PROCESS,
    "the one that was silent longest is forgotten",
)  # fmt: skip
FORWARDED_MAX: Final = Limit(
    32, "questions of tools to consumers under way", Unit.COUNT, Scope.PROCESS,
    "2, and not asked; an address gets a quarter of what is free",
)  # fmt: skip
ASKED_GROUPS_MAX: Final = Limit(
    2, "groups whose members are asked for their offsets", Unit.COUNT, Scope.PROCESS,
    "2, and none is asked",
)  # fmt: skip
ASKED_MEMBERS_MAX: Final = Limit(
    100, "members asked for their offsets", Unit.COUNT, Scope.REQUEST, "1, and none is asked"
)
RESET_BYTES_MAX: Final = Limit(
    64 * 1024**2, "what the members of a group are told by a reset", Unit.BYTES, Scope.REQUEST,
    "1, and none is told",
)  # fmt: skip
COPIED_BYTES_MAX: Final = Limit(
    128 * 1024**2,
    "messages that were given back and copied, each address has 8 MiB a second less",
    Unit.BYTES,
    Scope.PROCESS,
    "2, and it is not copied; an address gets a quarter of what is free",
)
LOG_ROOM_BYTES: Final = Limit(
    2 * 1024**2,
    "of the log, appended and not committed",
    Unit.BYTES,
    Scope.PROCESS,
    "what is larger than 6 KiB is appended later: one address after the other",
)
LOG_WAITING_BYTES_MAX: Final = Limit(
    256 * 1024**2,
    "sends that wait for room in the log",
    Unit.BYTES,
    Scope.PROCESS,
    "2, and nothing is stored; an address gets a quarter of what is free",
)
LOG_WAITING_MS_MAX: Final = Limit(
    2_500, "wait of a large send for room in the log", Unit.MILLISECONDS, Scope.REQUEST,
    "2, and nothing is stored",
)  # fmt: skip
"""Less than the 3 s after which clients give a send up, and send it again."""
QUEUE_UNITS_MAX: Final = Limit(
    1_000, "entries of a consume queue in an answer", Unit.COUNT, Scope.REQUEST, "so many, no more"
)
REPLIES_MAX: Final = Limit(
    4_096,
    "replies being passed on, an address a quarter of what is free",
    Unit.COUNT,
    Scope.PROCESS,
    "2, and not passed on",
)
REPLIES_BYTES_MAX: Final = Limit(
    64 * 1024**2, "replies being passed on, in bytes", Unit.BYTES, Scope.PROCESS,
    "2, and not passed on",
)  # fmt: skip
REPLIES_OF_CLIENT_MAX: Final = Limit(
    256, "replies that a producer has not taken yet", Unit.COUNT, Scope.CONNECTION,
    "2, and not passed on",
)  # fmt: skip
OPEN_HALVES_MAX: Final = Limit(
    1_000_000, "transactions that wait for their end", Unit.COUNT, Scope.GROUP,
    "2, and the half is not stored; one producer group, and one address, gets a quarter of what "
    "is free",
)  # fmt: skip
"""Each takes 48 to 96 bytes of memory, and 86 in a snapshot."""
RECENT_HALVES_BYTES_MAX: Final = Limit(
    16 * 1024**2, "halves of transactions that are kept at hand", Unit.BYTES, Scope.PROCESS,
    "forgotten, read from the log again",
)  # fmt: skip
TRANSACTIONS_ASKED_MAX: Final = Limit(
    1_024, "transactions whose producers are being asked for their end", Unit.COUNT, Scope.PROCESS,
    "the others are asked later",
)  # fmt: skip
IMMUNITY_MS_MAX: Final = Limit(
    3_600_000, "time for which a transaction may ask not to be asked for", Unit.MILLISECONDS,
    Scope.REQUEST, "asked for then; where `transactionTimeOut` is longer, after that",
)  # fmt: skip
ACCESS_FILE_BYTES_MAX: Final = Limit(
    128 * 1024, "access file", Unit.BYTES, Scope.PROCESS, "not read, and the rules before count"
)
ACCESS_HOSTS_MAX: Final = Limit(
    4_096, "addresses of which it is remembered whether they are trusted", Unit.COUNT,
    Scope.PROCESS, "forgotten, worked out again",
)  # fmt: skip

LIMITS: Final = (
    TOPICS_BYTES_MAX, TOPIC_QUEUES_MAX, GROUPS_MAX, OFFSETS_BYTES_MAX, LOCKS_MAX, LOCK_QUEUES_MAX,
    STATE_ENTRY_BYTES_MAX, TOLD_BYTES_MAX, TOLD_ROW_BYTES_MAX,
    NEW_GROUPS_OF_ADDRESS_MAX, NEW_GROUPS_MAX,
    CREATIONS_MAX, PARKED_MAX, PARKED_BYTES_MAX, PARKED_TOPIC_BYTES_MAX,
    PLANS_MAX, PLAN_NAMES_MAX, SUFFIXES_MAX, TAGS_REMEMBERED_MAX, REMEMBERED_BYTES_MAX,
    ANSWER_ROWS_MAX, ANSWER_BYTES_MAX, WALKS_MAX, WALKS_WAITING_MAX, TRAFFIC_NAMES_MAX,
    FORWARDED_MAX, ASKED_GROUPS_MAX, ASKED_MEMBERS_MAX, RESET_BYTES_MAX, COPIED_BYTES_MAX,
    LOG_ROOM_BYTES, LOG_WAITING_BYTES_MAX, LOG_WAITING_MS_MAX, QUEUE_UNITS_MAX,
    REPLIES_MAX, REPLIES_BYTES_MAX, REPLIES_OF_CLIENT_MAX,
    OPEN_HALVES_MAX, RECENT_HALVES_BYTES_MAX, TRANSACTIONS_ASKED_MAX, IMMUNITY_MS_MAX,
    ACCESS_FILE_BYTES_MAX, ACCESS_HOSTS_MAX,
)  # fmt: skip
