"""Options of ``produce`` and ``consume``: what they mean, and what is wrong usage."""

import asyncio
import json

import pytest
import typer

from cli.consume import Printer, Wanted, parse_begin
from cli.messages import Tally
from cli.produce import Sending, _row, parse_properties, send_all
from ledgermq.client import ConsumeContext, MessageQueue, SendResult, SendStatus
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_process_queue import message


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("first", -1), ("last", None), ("0", 0), ("1738321200000", 1_738_321_200_000),
        ("2025-01-31T12:00+00:00", 1_738_324_800_000),
    ],
)  # fmt: skip
def test_where_a_group_begins(text, begin):
    assert parse_begin(text) == begin


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1" * 16, "2025-13-01"])
def test_a_time_that_is_none_is_wrong_usage(text):
    with pytest.raises(typer.BadParameter, match="neither first, last"):
        parse_begin(text)


def test_properties_are_names_and_values():
    assert parse_properties(["a=1", " b =x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=x", ""):
        with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
            parse_properties([wrong])


@pytest.mark.parametrize("status", SendStatus)
def test_what_lies_on_too_few_disks_says_so(status):
    result = SendResult(status, "ID", "OFFSET", MessageQueue("t", "b", 3), 9, ())
    told = "" if status is SendStatus.SEND_OK else f" {status.name}"
    assert _row(result, as_json=False) == f"b/3 9 ID{told}"
    assert json.loads(_row(result, as_json=True))["sendStatus"] == status.name


async def given(*texts):
    for text in texts:
        yield text.encode()


def test_what_is_sent_carries_all_marks_and_what_fails_is_counted(capsys):
    async def body(cluster):
        servers = tuple(server.addr for server in cluster.name_servers)
        sending = Sending(
            topic=TOPIC, tags="t", keys="k", delay=2, properties={"p": "v"}, as_json=True
        )
        tally = Tally("sent", "failed")
        assert await send_all(servers, given("one", "", "two"), sending, tally) == 1
        assert (tally.good, tally.bad, tally.total) == (2, 1, 3)
        assert tally.words().startswith("2 sent, 1 failed in ")
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["topic"] for row in rows] == [TOPIC, TOPIC]
        stored = [one for queue in cluster.group.queues.values() for one in queue]
        for one in stored:
            found = one.property_map()
            assert (found["TAGS"], found["KEYS"], found["p"], found["DELAY"]) == (
                "t", "k", "v", "2",
            )  # fmt: skip

    run(body)


def test_wrong_marks_are_wrong_usage():
    sending = Sending(topic=TOPIC, properties={"KEYS": "x"})

    async def main():
        await send_all(("127.0.0.1:1",), given("x"), sending, Tally("sent"))

    with pytest.raises(typer.BadParameter, match="KEYS"):
        asyncio.run(main())


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "no space")])
def test_what_cannot_be_printed_is_left_unfinished_and_ends_the_command(error, monkeypatch):
    """It was given back, so that ``consume | head`` made dead letters of all that head left."""

    async def body():
        printed = []

        def echo(line, err=False):
            if printed:
                raise error
            printed.append(line)

        monkeypatch.setattr(typer, "echo", echo)
        wanted = Wanted(topic="t", expression="*", sql="", group="g", count=0, seconds=0)
        printer = Printer(wanted)
        context = ConsumeContext(MessageQueue("t", "b", 0))
        for number in range(3):
            task = asyncio.create_task(printer.listen([message(number)], context))
            await asyncio.wait([task])
            assert task.cancelled() == (number > 0)
        assert (printer.seen, printer.failed) == (1, error)
        assert printer.enough.is_set()

    asyncio.run(body())
