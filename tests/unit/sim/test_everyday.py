"""What everyday clients judge, and which plans have them."""

from types import SimpleNamespace

import pytest
from msgspec import structs

from ledgermq.client import Message
from ledgermq.remoting.protocol.codes import ResponseCode
from sim.everyday import bare, tags, values, versions
from sim.everyday.bare import Bare
from sim.everyday.tags import Changing
from sim.everyday.values import Values
from sim.everyday.versions import Versions
from sim.faults.draw import draw
from sim.faults.everyday import RESTARTS_MAX, Everyday, draw_everyday
from sim.faults.plan import FaultKind, decode_plan, encode_plan
from sim.oracles.base import Findings
from sim.oracles.same_key import NAME, SameKey
from sim.oracles.wire import Said
from sim.rng import SplitRng
from tests.unit.sim.habit_life import judge

SEEDS = range(1, 120)


def handed_out(body, **properties):
    return SimpleNamespace(content=lambda: body, maybe_property=properties.get)


@pytest.mark.parametrize(("now_ms", "found"), [(1_099, [bare.EARLY]), (1_100, [])])
def test_a_message_that_has_but_a_delay_is_not_handed_out_before(now_ms, found):
    sent = {b"one": (Message("T", b"one", delay_level=1), 100)}
    one, life = judge(Bare, _topic="T", _sent=sent, _delays_ms=(1_000,))
    life.now = now_ms
    one._check(handed_out(b"one"))
    assert life.oracles == found


@pytest.mark.parametrize(
    ("body", "properties", "found"),
    [
        (b"one", {"TAGS": "bare"}, []),
        (b"one", {}, [bare.CHANGED]),
        (b"one", {"TAGS": "bare", "KEYS": "k"}, [bare.CHANGED]),
        (b"two", {"TAGS": "bare"}, [bare.CHANGED]),
    ],
)
def test_a_message_has_the_one_thing_that_it_was_sent_with(body, properties, found):
    sent = {b"one": (Message("T", b"one", tags="bare"), 0)}
    one, life = judge(Bare, _topic="T", _sent=sent, _delays_ms=())
    one._check(handed_out(body, **properties))
    assert life.oracles == found


async def _take(one, body, tag):
    await one._take([handed_out(body, TAGS=tag)], None)


@pytest.mark.parametrize(("tag", "found"), [("red", []), ("blue", []), ("Aa", [tags.UNWANTED])])
def test_what_was_wanted_since_it_was_sent_may_come(tag, found):
    one, life = judge(
        Changing, _expressions=[("Aa",), ("red",), ("blue",)], _sent={b"one": (tag, 2)},
        _wanted={}, _got=set(),
    )  # fmt: skip
    coroutine = _take(one, b"one", tag)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert life.oracles == found


def test_what_it_wants_is_missing_until_it_comes_or_is_dropped():
    one, life = judge(Changing, _expressions=[("red",)], _wanted={b"one": ("queue", 3)})
    assert "was not handed to" in one.missing()
    life.dropped = 4
    assert not one.missing()


@pytest.mark.parametrize(
    ("code", "goes_on", "found"),
    [
        (20, 3, []),
        (20, 4, [versions.PASSED]),
        (19, 4, [versions.PASSED]),
        (25, 4, []),
    ],
)
def test_nothing_that_is_wanted_is_passed_over(code, goes_on, found):
    one, life = judge(Versions)
    told = SimpleNamespace(code=code, body=b"", ext_fields={"nextBeginOffset": str(goes_on)})
    one._check(3, "queue", told, "who asks")
    assert life.oracles == found


@pytest.mark.parametrize(
    ("known", "code", "value", "found"),
    [
        ("a", ResponseCode.SUCCESS, "a", []),
        ("a", ResponseCode.SUCCESS, "b", [values.OTHER]),
        (None, ResponseCode.SUCCESS, "b", [values.OTHER]),
        (None, ResponseCode.QUERY_NOT_FOUND, None, []),
        ("a", ResponseCode.QUERY_NOT_FOUND, None, [values.OTHER]),
        ("a", ResponseCode.SYSTEM_ERROR, None, []),
    ],
)
def test_a_value_is_what_was_told_last(known, code, value, found):
    one, life = judge(Values, _known={("ns", "k"): known})
    one._check("ns", "k", SimpleNamespace(code=code, ext_fields={"value": value}))
    assert life.oracles == found


@pytest.mark.parametrize(("second", "found"), [(b"AB", None), (b"CD", NAME)])
def test_a_message_keeps_its_unique_key(second, found):
    oracle = SameKey(findings := Findings())
    for unique in (b"AB", second):
        frame = b"KEYS\x0117\x02UNIQ_KEY\x01" + unique + b"\x02"
        oracle.on_request(None, Said(310, {"b": "orders"}, b"", 0, frame))
    assert (findings.first and findings.first.oracle) == found


def test_some_plans_have_them_and_their_parts_vary():
    drawn = [draw_everyday(SplitRng(seed), is_alone=False, is_steady=True) for seed in range(400)]
    having = [one for one in drawn if one is not None]
    assert 40 < len(having) < 120
    for part in ("bare", "unmade", "early", "changing", "groups", "values"):
        assert {getattr(one, part) for one in having} == {True, False}
    assert not any(
        draw_everyday(SplitRng(seed), is_alone=True, is_steady=True) for seed in range(50)
    )


def test_values_are_kept_where_name_servers_begin_anew_and_clocks_agree():
    plans = [plan for plan in map(draw, SEEDS) if plan.workload.everyday is not None]
    assert plans
    for plan in plans:
        assert decode_plan(encode_plan(plan)) == plan
        assert not plan.options.alone
        if plan.workload.everyday.values:
            restarts = [one for one in plan.events if one.kind is FaultKind.NAMESRV_CRASH]
            assert len(restarts) >= 1
            assert plan.options.peer_key
            assert not plan.options.clock_spread_ms
    assert RESTARTS_MAX >= 1


def test_a_plan_without_them_is_read_as_before():
    plan = draw(1)
    bare_plan = structs.replace(plan, workload=structs.replace(plan.workload, everyday=None))
    text = encode_plan(bare_plan).replace(b',"everyday":null', b"")
    assert decode_plan(text) == bare_plan
    assert Everyday() == Everyday(every_ms=250)
