"""What brokers do not take back: consumers send copies of it themselves."""

from types import SimpleNamespace

import pytest

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from sim.edging import not_taken_back_p
from sim.faults.draw import draw
from sim.faults.plan import Options, Plan, Workload
from sim.faults.traffic import Orderly, Retrying
from sim.refusals import Refusals
from sim.rng import SplitRng
from sim.run import VALID, run_plan

BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)


@pytest.fixture(scope="module")
def plans():
    return [draw(seed) for seed in range(1, 301)]


def test_brokers_take_nothing_back_in_some_plans(plans):
    for kind in ("retrying", "orderly"):
        shares = {one.refused_p for plan in plans if (one := getattr(plan.workload, kind))}
        assert shares == {0.0, 0.3, 1.0}
    workload = Workload(retrying=Retrying(refused_p=0.3), orderly=Orderly(refused_p=1.0))
    assert not_taken_back_p(Plan(seed=1, options=Options(), workload=workload)) == 1.0
    assert not_taken_back_p(Plan(seed=1, options=Options())) == 0.0


@pytest.mark.parametrize("is_over", [False, True])
def test_what_is_given_back_is_refused_until_the_faults_are_over(is_over):
    taken, heard = [], []

    def take(connection, request):
        taken.append((connection, request))
        return "an answer"

    controller = SimpleNamespace(server=SimpleNamespace(_handlers={BACK: take}))
    Refusals((0.0, 1.0), lambda: is_over, heard.append).listen(controller, SplitRng(1))
    request = RemotingCommand(BACK, opaque=7)
    answer = controller.server._handlers[BACK]("a connection", request)
    assert taken == ([("a connection", request)] if is_over else [])
    assert heard == ([] if is_over else ["not_taken_back"])
    if is_over:
        assert answer == "an answer"
    else:
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 7)


def test_members_send_what_is_not_taken_back_themselves():
    retrying = Retrying(share=0.8, fail_p=0.6, never_p=0.2, times_max=2, refused_p=1.0)
    options = Options(safety_ms=6_000, delay_levels="1s 1s 1s 1s 1s 1s")
    result = run_plan(Plan(seed=5, options=options, workload=Workload(retrying=retrying)))
    assert result.verdict == VALID, (result.oracle, result.text)
    assert result.counters["not_taken_back"] > 10
