"""Planted bugs at the door of a send: what a client may put into a message.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches
from mutants.records import HOST_BITS

_FLAGS = "broker.sends.rules:client_flags"
_MEANING = "flags & ~PLAIN_FLAGS not in _COMPRESSIONS"
_ADD = "broker.sends.waiting:WaitingRoom.add"

DOOR: Final = (
    Mutant(
        name="client-sets-host-bits",
        breaks="A send says itself how wide the host fields of its record are.",
        source="Seen in this system: acknowledged, and no follower could read the record.",
        plant=patches(
            patch(
                _FLAGS,
                ("sys_flag & ~_HOST_FLAGS", "sys_flag"),
                (_MEANING, "flags & ~PLAIN_FLAGS & ~_HOST_FLAGS not in _COMPRESSIONS"),
            ),
            *HOST_BITS,  # the store sees to it as well
        ),
    ),
    Mutant(
        name="bits-without-a-meaning",
        breaks="A send may say that it is an inner batch, or compressed in no known way.",
        source="RocketMQ MessageSysFlag: readers take such a body apart.",
        plant=patch(_FLAGS, (_MEANING, "False")),
    ),
    Mutant(
        name="delay-of-any-length",
        breaks="The digits of DELAY are read as a number, however many they are.",
        source="Seen in this system: 5,000 digits ended the leader.",
        plant=patch("broker.sends.rules:level_of", ("int(digits[:10])", "int(digits)")),
    ),
    Mutant(
        name="delay-within-a-batch",
        breaks="A message of a batch may be delayed or transactional: it is delivered at once.",
        source="RocketMQ MessageBatch.generateFromList.",
        plant=patch("broker.sends.door:_check", ('if b"DELAY\\x01" in', 'if b"DELAYED" in')),
    ),
    Mutant(
        name="timer-without-effect",
        breaks="A message with RocketMQ 5's time of delivery is taken, and delivered at once.",
        source="RocketMQ 4.9.7 takes it so.",
        plant=patches(
            patch("broker.sends.properties:_make_plan", ("name in TIMERS", "not name")),
            patch("broker.sends.door:_check", ('if b"TIMER_DEL" in joined', "if not joined")),
        ),
    ),
    Mutant(
        name="timer-of-any-text",
        breaks="A time of delivery that is not a number is one that has come.",
        source="RocketMQ 4.9.7 takes it so; 5.3.3 refuses it.",
        plant=patch(
            "broker.sends.rules:check_timer",
            (
                "if not _INT64.fullmatch(held[name]):",
                "if not held[name].isdigit():\n        return\n    if False:",
            ),
        ),
    ),
    Mutant(
        name="batch-copied-before-its-limit",
        breaks="The properties of a batch are copied to each message, however large that becomes.",
        source="Seen in this system: a frame of 126 KB became 131 MB.",
        plant=patch(
            "broker.sends.door:_columns",
            ("if stored_bytes > BATCH_PROPERTIES_BYTES_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="batch-of-any-length",
        breaks="A batch may have as many messages as its frame holds.",
        source="Seen in this system: 65,536 messages held the loop for seconds.",
        plant=patch("broker.sends.door:_columns", ("(body, BATCH_MESSAGES_MAX)", "(body)")),
    ),
    Mutant(
        name="batch-properties-as-they-came",
        breaks="What is no pair, or no UTF-8, in a batch is stored as it came.",
        source="Readers differ: the leader's index had tags that a restart did not find.",
        plant=patches(
            patch("broker.sends.door:_texts", ("not is_regular(joined)", "False")),
            patch("broker.sends.door:_is_utf8", ("return False", "return True")),
        ),
    ),
    Mutant(
        name="separator-within-a-value",
        breaks="The value of a property may hold the byte that ends its name.",
        source="RocketMQ MessageDecoder: before 4.9.3 such a pair was dropped, since then kept.",
        plant=patch("broker.sends.properties:items_of", ("item.count(_EQUALS) > 1", "False")),
    ),
    Mutant(
        name="keys-without-limit",
        breaks="A message may have as many keys as its properties hold.",
        source="RocketMQ IndexService.buildIndex: an entry each.",
        plant=patch(
            "broker.sends.rules:check_keys", ("if words > KEY_WORDS_MAX or", "if False and")
        ),
    ),
    Mutant(
        name="properties-parsed-whatever-their-length",
        breaks="Properties are taken apart before their length is looked at.",
        source="Seen in this system: 20,000 of them held the loop for seconds.",
        plant=patch("broker.sends.door:Door.read", ("or len(text) > PROPERTIES_BYTES_MAX", "")),
    ),
    Mutant(
        name="remembered-by-count",
        breaks="Texts of clients are remembered whatever their length.",
        source="Seen in this system: 120 batches left 900 MB behind.",
        plant=patches(
            patch(
                "broker.sends.properties:PropertyRewriter.batch_suffix",
                ("if len(text) <= REMEMBERED_BYTES_MAX:", "if True:"),
            ),
            patch(
                "broker.sends.properties:PropertyRewriter.tags_code",
                ("if len(tags) <= REMEMBERED_BYTES_MAX:", "if True:"),
            ),
            patch(
                "broker.sends.properties:PropertyRewriter._add_plan",
                ("sum(map(len, keys)) <= REMEMBERED_BYTES_MAX", "True"),
            ),
        ),
    ),
    Mutant(
        name="tags-remembered-by-count",
        breaks="Tags that are read back from the log are remembered whatever their length.",
        source="As above: ten thousand of 32 KB each.",
        plant=patch(
            "store.layout:tags_code", ("if len(tags) <= _CACHED_TAGS_BYTES_MAX:", "if True:")
        ),
    ),
    Mutant(
        name="parked-by-count",
        breaks="Sends that wait for their topic may take any number of bytes.",
        source="Seen in this system: ten thousand sends of 4 MiB could wait.",
        plant=patch(
            _ADD,
            ("self._topic_bytes[topic] + size_bytes > PARKED_TOPIC_BYTES_MAX", "False"),
            ("self.size_bytes + size_bytes > PARKED_BYTES_MAX", "False"),
        ),
    ),
    Mutant(
        name="later-sends-overtake",
        breaks="A send that comes when its topic is applied goes before those that wait for it.",
        source="RocketMQ's contract of a queue: one producer's messages keep their order.",
        plant=patch(
            "broker.processor.send:SendProcessor.handle",
            ("or (parked and header.topic in parked)", ""),
        ),
    ),
    Mutant(
        name="let-go-at-once",
        breaks="All sends that waited for a topic go on in one turn of the loop.",
        source="Nobody else is served meanwhile.",
        plant=patch(
            "broker.sends.waiting:WaitingRoom.let_go",
            ("and sends < SLICE_SENDS and slice_bytes < SLICE_BYTES", ""),
        ),
    ),
    Mutant(
        name="creation-fails-unanswered",
        breaks="Whoever waits for a topic whose creation raised waits for ever.",
        source="Seen in this system: it ended the leader.",
        plant=patch(
            "broker.sends.creation:Creator._create_parked",
            ("except Exception as error:", "except ZeroDivisionError as error:"),
        ),
    ),
    Mutant(
        name="parked-batch-goes-on-as-one",
        breaks="A batch that waited for its topic is stored as one message.",
        source="RocketMQ SendMessageProcessor: the code of the request decides, too.",
        plant=patch(
            "broker.processor.send:SendProcessor._park",
            ("self.handle_batch if header.batch else self.handle", "self.handle"),
        ),
    ),
)
