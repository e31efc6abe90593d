"""What a machine judges that no access file trusts, and which plans have it."""

import pytest
from msgspec import structs

from broker.access.door import AccessDoor, Around
from broker.access.rules import read_rules
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from mutants.patches import MUTANTS
from mutants.planting import planted
from sim.faults.draw import draw
from sim.faults.guarded import draw_guarded
from sim.faults.plan import decode_plan, encode_plan
from sim.guarded import app
from sim.guarded.accounts import CODES, NOTHING, SUB, Account, document_of, draw_accounts
from sim.guarded.app import Accounts, Question
from sim.rng import SplitRng
from tests.unit.sim.habit_life import judge

HOST = "10.0.0.1"
READER = Account("account-r", "secret-r", False, "DENY", "DENY", {"T": SUB}, {"G": SUB})


def door_of(accounts):
    """A broker's door with their access file."""
    rules = read_rules(document_of(accounts, ("10.9.9.9",)))
    return AccessDoor(
        Around(rules=lambda: rules, guard=None, topic_at=lambda _place: None, clock=None), ()
    )


def questions(seed, count=80):
    rng = SplitRng(seed)
    one, _ = judge(Accounts, _accounts=draw_accounts(rng.split("accounts")), _asked=0)
    return one, [one._draw(rng.split(f"question{number}")) for number in range(count)]


def refusal(one, door, question):
    """What the broker's door says of a question as it comes over the wire."""
    (frame,) = FrameDecoder().feed(one._frame(question, 1))
    return door.refusal(HOST, decode_command(frame))


def disagreements(seed):
    one, asked = questions(seed)
    door = door_of(one._accounts)
    return [each for each in asked if (refusal(one, door, each) is None) != each.is_allowed]


@pytest.mark.parametrize("seed", range(25))
def test_the_rules_written_anew_say_what_a_broker_says(seed):
    assert not disagreements(seed)


def test_a_list_that_denies_is_no_default():
    with planted(MUTANTS["denied-topic-by-default"]):
        assert any(disagreements(seed) for seed in range(25))


@pytest.mark.parametrize(
    ("keys", "code", "answer", "remark", "found"),
    [
        ("own", 11, 17, "no topic", []),
        ("own", 11, 16, "account-r lacks SUB of topic T (aclEnable)", [app.OTHERWISE]),
        ("own", 10, 16, "account-r lacks PUB of topic T (aclEnable)", []),
        ("own", 10, 17, "no topic", [app.OTHERWISE]),
        ("own", 10, 16, "the topic is not writable", [app.OTHERWISE]),
        ("wrong", 11, 17, "no topic", [app.OTHERWISE]),
        ("none", 11, 16, "no AccessKey (aclEnable)", []),
        ("none", 29_001, 0, None, []),
        ("own", 17, 1, "no", [app.OTHERWISE]),
    ],
)
def test_an_answer_is_judged_by_what_the_account_may(keys, code, answer, remark, found):
    one, life = judge(Accounts)
    question = Question(code, "T", "G", READER, keys)
    one.check(question, RemotingCommand(answer, remark=remark))
    one.check(question, None)
    assert life.oracles == found


def test_every_kind_of_request_is_asked_for_with_all_kinds_of_keys():
    asked = [each for seed in range(10) for each in questions(seed, 200)[1]]
    assert {each.code for each in asked} == set(CODES)
    assert {each.keys for each in asked} == set(app.KEYS)
    assert {each.is_allowed for each in asked if each.code not in NOTHING} == {True, False}


def test_some_plans_have_them_and_none_with_odd_clients():
    having = [seed for seed in range(400) if draw_guarded(SplitRng(seed), has_odd=False)]
    assert 60 < len(having) < 140
    assert not any(draw_guarded(SplitRng(seed), has_odd=True) for seed in range(50))
    plans = [plan for plan in map(draw, range(1, 80)) if plan.workload.guarded is not None]
    assert plans
    for plan in plans:
        assert not plan.workload.odd
        assert decode_plan(encode_plan(plan)) == plan


def test_a_plan_without_them_is_read_as_before():
    plan = draw(15)
    assert plan.workload.guarded is not None
    bare_plan = structs.replace(plan, workload=structs.replace(plan.workload, guarded=None))
    text = encode_plan(bare_plan).replace(b',"guarded":null', b"")
    assert decode_plan(text) == bare_plan
