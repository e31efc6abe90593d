"""Scenarios of brokers whose roles controllers say: killed, late, cut off, without their disks.

``leader`` is the master, ``follower`` its slave. Nobody switches by hand: once the master is dead
to the controllers, they choose the next one from the in-sync set. Source: docs/replication.md.
"""

from dataclasses import replace

from chaos.catalogue.contracts import CONTROLLER
from chaos.pair_scenarios import both_back, slave_disk_lost
from chaos.scenario import WORKLOADS, Scenario, Step

ROUND_S = 115.0
"""About how long the acts of the demo take together."""
CONSUMER_CRASH_S = 8.0
ELECTED_S = 20.0
BEHIND_S = 5.0
"""Longer than `haMaxTimeSlaveNotCatchup` of the harness's brokers: the set changes."""


def _settled() -> tuple[Step, ...]:
    return (
        Step(do="await", what="healthy", within_s=ELECTED_S),
        Step(do="await", what="acks", within_s=ELECTED_S),
    )


def master_killed(name: str, *, down_s: float = 2.0) -> tuple[Step, ...]:
    """SIGKILL the master; the slave takes over, and the old one comes back as its slave."""
    kill = f"{name}-kill"
    return (
        Step(do="look"),
        Step(do="start", name=kill, kind="kill", targets=("leader",), after_s=0.5),
        Step(do="await", what="leader", within_s=ELECTED_S),
        Step(do="await", what="acks", within_s=ELECTED_S),
        Step(do="stop", name=kill, after_s=down_s),
        *_settled(),
    )


def tail_left(name: str, *, cut_s: float = 0.7) -> tuple[Step, ...]:
    """The master dies with a tail that its slave never heard of, and comes back with it.

    What it stored while the HA link was cut is acknowledged to nobody, since the slave is in the
    set still. The slave is elected and goes on; the old master must cut its tail off.
    """
    cut, kill = f"{name}-cut", f"{name}-kill"
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="start", name=kill, kind="kill", targets=("leader",), after_s=cut_s),
        Step(do="stop", name=cut),
        Step(do="await", what="leader", within_s=ELECTED_S),
        Step(do="await", what="acks", within_s=ELECTED_S),
        Step(do="stop", name=kill, after_s=1.0),
        *_settled(),
    )


def link_cut(name: str, *, hold_s: float = BEHIND_S) -> tuple[Step, ...]:
    """Cut the HA link until the slave is out of the set; heal it, and it is let in again."""
    cut = f"{name}-cut"
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="stop", name=cut, after_s=hold_s),
        *_settled(),
    )


def slave_behind(name: str, *, hold_s: float = BEHIND_S) -> tuple[Step, ...]:
    """Freeze the slave until it is behind, and out of the set."""
    pause = f"{name}-pause"
    return (
        Step(do="look"),
        Step(do="start", name=pause, kind="pause", targets=("follower",), after_s=0.5),
        Step(do="stop", name=pause, after_s=hold_s),
        *_settled(),
    )


def master_cut_off(name: str, *, hold_s: float = 7.0) -> tuple[Step, ...]:
    """The master reaches neither controllers nor its slave, and clients reach it.

    To the controllers it is dead, so the slave is elected. The old master must not acknowledge
    anything in its old epoch, and comes back as a slave.
    """
    cut, links = f"{name}-cut", f"{name}-controller_cut"
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="start", name=links, kind="controller_cut", targets=("leader",)),
        Step(do="await", what="leader", within_s=hold_s),
        Step(do="await", what="acks", within_s=hold_s),
        Step(do="stop", name=links, after_s=2.0),
        Step(do="stop", name=cut),
        *_settled(),
    )


def controllers_stand_still(name: str, *, hold_s: float = BEHIND_S) -> tuple[Step, ...]:
    """Two of three controllers stand still: nothing is decided, and the master closes in time."""
    pause = f"{name}-controller_pause"
    return (
        Step(do="look"),
        Step(do="start", name=pause, kind="controller_pause", after_s=0.5),
        Step(do="stop", name=pause, after_s=hold_s),
        *_settled(),
    )


def controllers_cut_off(name: str, *, count: int = 2, hold_s: float = BEHIND_S) -> tuple[Step, ...]:
    """Controllers do not hear each other, and brokers hear them all; the one that leads is hit.

    Two of three: nothing is decided, by none of the three, and the master closes in time. One: it
    led, so the other two elect another one, and what the former one says counts no more.
    """
    cut = f"{name}-controller_isolate"
    return (
        Step(do="look"),
        Step(
            do="start",
            name=cut,
            kind="controller_isolate",
            parameters={"count": count},
            after_s=0.5,
        ),
        Step(do="stop", name=cut, after_s=hold_s),
        *_settled(),
    )


def controller_killed(name: str, *, down_s: float = 2.0) -> tuple[Step, ...]:
    """SIGKILL the controller that leads: another one does, and nobody else notices."""
    kill = f"{name}-controller_kill"
    return (
        Step(do="look"),
        Step(do="start", name=kill, kind="controller_kill", after_s=0.5),
        Step(do="await", what="acks", within_s=ELECTED_S),
        Step(do="stop", name=kill, after_s=down_s),
        *_settled(),
    )


def disk_lost(name: str, *, cut_s: float = 0.7) -> tuple[Step, ...]:
    """The master's disk is lost with what its slave never heard of; it begins anew as a slave."""
    cut, wipe = f"{name}-cut", f"{name}-wipe"
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="start", name=wipe, kind="wipe", targets=("leader",), after_s=cut_s),
        Step(do="stop", name=cut),
        Step(do="await", what="leader", within_s=ELECTED_S),
        Step(do="await", what="acks", within_s=ELECTED_S),
        Step(do="stop", name=wipe, after_s=1.0),
        *_settled(),
    )


def switch_demo(
    *, seconds: float = ROUND_S, rate: float = 300.0, workload: str = "plain"
) -> Scenario:
    """Everything that happens to brokers with controllers, in rounds; the disk comes last."""
    rounds = max(1, round(seconds / ROUND_S))
    timeline: tuple[Step, ...] = ()
    for at in range(1, rounds + 1):
        mark = "" if rounds == 1 else f"{at}."
        timeline += master_killed(f"{mark}1") + tail_left(f"{mark}2") + link_cut(f"{mark}3")
        timeline += slave_behind(f"{mark}4") + controller_killed(f"{mark}5")
        timeline += controllers_stand_still(f"{mark}6") + master_cut_off(f"{mark}7")
        timeline += controllers_cut_off(f"{mark}8") + controllers_cut_off(f"{mark}9", count=1)
        timeline += both_back(f"{mark}10", "follower", "leader")
        timeline += both_back(f"{mark}11", "leader", "follower") + disk_lost(f"{mark}12")
    return Scenario(
        name="demo",
        mode=CONTROLLER,
        workload=replace(WORKLOADS[workload], rate=rate),
        timeline=timeline,
        coverage={
            "kill": 4, "cut": 3, "pause": 1, "wipe": 1, "controller_kill": 1,
            "controller_pause": 1, "controller_cut": 1, "controller_isolate": 2,
        },
        timeline_s_max=400.0 * rounds,
        drain_s=30.0,
        crash_consumer_s=CONSUMER_CRASH_S,
    )  # fmt: skip


def switch_disks(*, rounds: int = 2, rate: float = 300.0, workload: str = "plain") -> Scenario:
    """Disks are lost again and again: the slave's, then the master's; each begins anew."""
    timeline: tuple[Step, ...] = ()
    for at in range(1, rounds + 1):
        timeline += slave_disk_lost(f"{at}.1") + disk_lost(f"{at}.2")
    return replace(
        switch_demo(rate=rate, workload=workload),
        name="disks",
        crash_consumer_s=None,
        timeline=timeline,
        coverage={"wipe": 2 * rounds, "cut": rounds},
        timeline_s_max=160.0 * rounds,
    )
