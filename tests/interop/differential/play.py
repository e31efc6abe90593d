"""Plays drawn requests against both servers and gathers what differs."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.interop.differential.compare import asked, compared, differences
from tests.interop.differential.known import reason
from tests.interop.differential.sides import Place, Side
from tests.interop.differential.wire import Link, Wired
from tests.interop.differential.words import APART, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.remoting.protocol.command import RemotingCommand
    from tests.interop.differential.draw import Draw, Step
    from tests.interop.differential.moves import Moves

SENDS = frozenset({10, 310, 320, 324, 325})
CHANGES = SENDS | {15, 17, 34, 35, 36, 37, 41, 42, 200, 207, 215, 222, 314, 100, 102, 205, 327}
"""Codes that change something, and so are not asked again."""
SETTLE_TURNS, SETTLE_S = 10, 0.04
"""RocketMQ fills its queues, registers topics and tells clients a moment after its answer."""
PATIENCE = 3
"""For so many requests the one side may have told clients what the other has not yet."""


@dataclass(slots=True)
class Difference:
    """A request that the two sides answered differently."""

    number: int
    step: Step
    theirs: dict[str, Any] | None
    ours: dict[str, Any] | None
    lines: list[str]
    remarks: tuple[str | None, str | None]
    is_of_a_later_life: bool = False
    """Whether a broker of ours has begun anew before, and led."""

    def described(self) -> str:
        """Return it as text."""
        lines = "".join(f"\n    {line}" for line in self.lines)
        theirs, ours = self.remarks
        return (
            f"#{self.number} {self.step.described()}{lines}"
            f"\n    they say {(theirs or '')[:200]!r}\n    we say   {(ours or '')[:200]!r}"
        )


@dataclass(slots=True)
class Play:
    """A run over two sides.

    ``moves`` has our group change its leader meanwhile, where that is wanted.
    ``found`` are differences that nobody knows, ``known`` says how often each of the others was
    met, ``told`` is what one side alone has asked clients yet; ``say`` gets each request.
    """

    theirs: Side
    ours: Side
    say: Callable[[str], object] = lambda _line: None
    found: list[Difference] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    told: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))
    number: int = 0
    moves: Moves | None = None

    async def run(self, draw: Draw, count: int) -> None:
        """Play what prepares a run, then ``count`` drawn requests."""
        for step in draw.steps():
            await self.play(draw, step)
            if self.moves is not None:
                self.moves.note(step)
        for _ in range(count):
            step = draw.step()
            await self.play(draw, step)
            if self.moves is not None:
                await self.moves.after(step, self.theirs, self.ours)
        for step in draw.last_steps():
            await self.play(draw, step)

    async def play(self, draw: Draw, step: Step) -> None:
        """Play one request; note what differs."""
        self.number += 1
        number = self.number
        self.say(f"{number} {step.described()}")
        self.codes[step.code] += 1
        for turn in range(1 if step.then or step.code in CHANGES else SETTLE_TURNS):
            if turn:
                await asyncio.sleep(SETTLE_S)
            answers = await (self._held(draw, step) if step.then else self._answers(step))
            theirs, ours = (compared(step.code, answer) for answer in answers)
            lines = differences(theirs, ours)
            if not lines or None in answers:
                break
        told = await self._asked()
        lines += differences(*told, "asked")
        if lines:
            said = [None if answer is None else answer.remark for answer in answers]
            later = self.moves is not None and self.moves.killed > 0
            self._judge(Difference(number, step, theirs, ours, lines, (said[0], said[1]), later))
        if step.code in SENDS and not step.oneway:
            note(draw, step, (self.theirs, self.ours), answers)
        if step.code in CHANGES:
            await asyncio.sleep(SETTLE_S / 10)  # so that store times differ

    def _judge(self, found: Difference) -> None:
        why = reason(found)
        if why is not None:
            self.known[why] += 1
            self.say(f"known, {why}: {found.described()}")
            return
        self.found.append(found)
        self.say(f"DIFFERS {found.described()}")

    async def _answers(self, step: Step) -> list[RemotingCommand | None]:
        return await asyncio.gather(*(ask(side, step) for side in (self.theirs, self.ours)))

    async def _held(self, draw: Draw, step: Step) -> list[RemotingCommand | None]:
        """Pull from the end of a queue, and send what wakes the pull."""
        assert step.then is not None
        waiting = []
        await asyncio.sleep(10 * SETTLE_S)  # until their queue has what was sent before
        for side in (self.theirs, self.ours):
            place = {name: step.fields[name] for name in ("topic", "queueId")}
            end = await side.link("broker").ask(Wired(30, place))
            offset = 0 if end is None else int(end.ext_fields["offset"])
            wired = Wired(step.code, {**step.fields, "queueOffset": offset}, binary=step.binary)
            waiting.append(await side.link("broker", step.link).begin(wired))
        await asyncio.sleep(SETTLE_S)
        await self.play(draw, step.then)
        return await asyncio.gather(*(Link.end(answer) for answer in waiting))

    async def _asked(self) -> list[list[dict[str, Any]]]:
        """Return the requests that clients got meanwhile, of both sides.

        Those that one side alone has sent yet wait for the other, for some steps.
        """
        for _ in range(SETTLE_TURNS):
            for rows, side in zip(self.told, (self.theirs, self.ours), strict=True):
                for link in side.links.values():
                    told = [asked(command) for command in link.asked]
                    rows += [(self.number, row) for row in told if not is_of_broadcasting(row)]
                    link.asked.clear()
            cancel(*self.told)
            if not any(self.told):
                break
            await asyncio.sleep(SETTLE_S)
        late = [
            sorted((row for number, row in rows if number <= self.number - PATIENCE), key=str)
            for rows in self.told
        ]
        for rows in self.told:
            rows[:] = [(number, row) for number, row in rows if number > self.number - PATIENCE]
        return late


def is_of_broadcasting(row: dict[str, Any]) -> bool:
    """Tell whether a member that broadcasts is told of the others, which ours are not."""
    return row["code"] == 40 and row["fields"].get("consumerGroup") == GROUPS[3]


def cancel(theirs: list[tuple[int, Any]], ours: list[tuple[int, Any]]) -> None:
    """Take away what both sides have."""
    for one in list(theirs):
        other = next((other for other in ours if other[1] == one[1]), None)
        if other is not None:
            ours.remove(other)
            theirs.remove(one)


async def ask(side: Side, step: Step) -> RemotingCommand | None:
    """Ask one side."""
    fields = {name: side.value(value) for name, value in step.fields.items()}
    wired = Wired(step.code, fields, step.body, step.binary, step.oneway)
    return await side.link(step.target, step.link).ask(wired)


def is_plain(step: Step) -> bool:
    """Tell whether a message lies where anybody may read it."""
    texts = [str(value) for value in step.fields.values()]
    names = ("DELAY\x01", "TRAN_MSG\x01true")
    if step.code in {324, 325} or APART in texts:
        return False
    return not any(name in text for text in texts for name in names)


def note(
    draw: Draw, step: Step, sides: tuple[Side, ...], answers: list[RemotingCommand | None]
) -> None:
    """Keep the place of a message that both sides stored."""
    if any(
        answer is None or answer.code or "queueOffset" not in answer.ext_fields
        or len(answer.ext_fields["msgId"]) < 32
        for answer in answers
    ):  # fmt: skip
        return
    for side, answer in zip(sides, answers, strict=True):
        assert answer is not None
        fields = answer.ext_fields
        ids = fields["msgId"].split(",")
        side.places.append(Place(ids[0], int(fields["queueId"]), int(fields["queueOffset"])))
    if step.code == 310 and step.fields.get("f") == 4:
        unique = str(step.fields["i"]).partition("UNIQ_KEY\x01")[2].partition("\x02")[0]
        draw.halves.append((draw.sent, unique))
    elif is_plain(step):
        draw.plain.append(draw.sent)
    draw.sent += 1
