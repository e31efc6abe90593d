"""A mapping file says what is wrong with it, where, and what to write instead."""

import pytest

from chaos.exchange.mapping import MappingError, parse_mapping

SOUND = """\
run_id = "theirs"
time = "ms"
words = ["msg_key"]
clock_tolerance_ms = 1.5
drained = ["billing"]

[run]
contract = { durability = "quorum" }

[[table]]
name = "sends"
files = "p*.csv"
only = { event = ["send", "resend"] }
[table.columns]
msg_key = "key"
topic = { value = "orders" }
queue_id = ["broker", "queue"]
t_inv = "sent"
t_cmp = { column = "done", unit = "us" }
outcome = { column = "said", default = "info" }
[table.words.outcome]
ok = "acked"
fail = ["refused", 14]

[[table]]
name = "deliveries"
[table.columns]
grp = "group"
topic = "topic"
queue_id = "queue"
queue_offset = "offset"
msg_key = "key"
t_recv = "at"
"""


def test_sound_mapping_says_all_of_it():
    told = parse_mapping(SOUND, "m.toml")
    assert (told.run_id, told.tolerance_ns, told.drained) == ("theirs", 1_500_000, ["billing"])
    assert told.run == {"contract": {"durability": "quorum"}}
    sends, deliveries = told.tables
    assert (sends.name, sends.files, sends.only) == (
        "sends",
        "p*.csv",
        {"event": ["send", "resend"]},
    )
    cells = {cell.target.name: cell for cell in sends.cells}
    assert (cells["t_inv"].unit, cells["t_cmp"].unit, cells["topic"].unit) == ("ms", "us", "")
    assert cells["queue_id"].sources == ("broker", "queue")
    assert cells["topic"].constant == "orders"
    assert cells["outcome"].words == {"acked": "ok", "refused": "fail", "14": "fail"}
    assert (cells["msg_key"].is_named, cells["queue_id"].is_named) == (True, False)
    assert deliveries.files == "*"


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ('time = "ms"', 'tiem = "ms"', 2, "tiem is not known here; there are run_id"),
        ('time = "ms"', 'time = "minutes"', 2, "is in 'minutes'; write one of ns, us, ms, s"),
        ('time = "ms"', "time = ", 2, "not TOML"),
        ('words = ["msg_key"]', 'words = ["topic"]', 3, "words is ['topic']; write a list of"),
        ("clock_tolerance_ms = 1.5", "clock_tolerance_ms = 60001", 4, "write milliseconds, 0 to"),
        ('drained = ["billing"]', 'drained = "yes"', 5, "write true, false or a list of groups"),
        ("durability", "durable", 1, None),
        ('durability = "quorum"', 'durability = "all"', 8, "contract.durability is 'all'"),
        ("contract =", "promise =", 8, "promise is not known here; there are contract"),
        ('name = "sends"', 'name = "sent"', 11, "name is 'sent'; write one of sends, deliveries"),
        ('files = "p*.csv"', "files = 5", 12, "files is 5; write a name or a pattern"),
        ('files = "p*.csv"', 'flies = "p*.csv"', 12, "flies is not known here"),
        ('msg_key = "key"\ntopic', 'key = "key"\ntopic', 15, "sends has no column key; it has"),
        ('t_inv = "sent"\n', "", 14, "sends needs t_inv: say which column has it"),
        ('t_inv = "sent"', "t_inv = 7", 18, 't_inv is 7; write "COLUMN", or'),
        ('"done", unit', '"done", units', 19, "units is not known here; there are column, value"),
        ('unit = "us"', 'unit = "h"', 19, "t_cmp is in 'h'; write one of ns"),
        ('ok = "acked"', 'OK = "acked"', 22, "outcome cannot be OK; it is one of ok, fail, info"),
        ('"refused", 14', '"refused", "acked"', 23, "'acked' is both ok and fail"),
        ('t_recv = "at"\n', "", 27, "deliveries needs t_recv"),
        ('msg_key = "key"\nt_recv', "t_recv", 27, "deliveries needs msg_key"),
        ('name = "deliveries"', 'name = "acks"', 27, "queue_offset"),
    ],
)  # fmt: skip
def test_mistake_is_named_with_its_line(before, after, line, said):
    assert before in SOUND
    text = SOUND.replace(before, after, 1)
    if said is None:  # a member of a contract that nobody asks about
        assert parse_mapping(text, "m.toml").run["contract"] == {"durable": "quorum"}
        return
    with pytest.raises(MappingError) as caught:
        parse_mapping(text, "m.toml")
    lines = str(caught.value).splitlines()
    told = [one for one in lines if said in one]
    if said == "queue_offset":
        assert any("acks needs kind" in one for one in lines)
    else:
        assert told, lines
    if "not TOML" in said:
        assert "line 2" in told[0]
    elif said != "queue_offset":
        assert told[0].startswith(f"m.toml:{line}: ")


@pytest.mark.parametrize("text", ["", "table = 5", "[table]\nname = 'sends'", "[[table]]\n",
                                  "[[table]]\nname = 'sends'\ncolumns = 5"])  # fmt: skip
def test_text_without_tables_is_refused(text):
    with pytest.raises(MappingError, match=r"m\.toml:\d+: "):
        parse_mapping(text, "m.toml")


def test_history_without_deliveries_is_refused():
    with pytest.raises(MappingError, match="a history needs sends and deliveries"):
        parse_mapping(SOUND[: SOUND.rindex("[[table]]")], "m.toml")
