"""Scenarios of a master and its slave: who is killed, cut off, late, restarted, or loses its disk.

``leader`` is the master in their timelines, ``follower`` the slave. While the master is down nobody
takes writes, and consumers go on at the slave. Source: docs/replication.md.
"""

from dataclasses import replace

from chaos.scenario import WORKLOADS, Scenario, Step

ROUND_S = 36.0
"""About how long the acts of the demo take together."""
CONSUMER_CRASH_S = 5.0


def master_back(name: str, *, down_s: float = 5.0) -> tuple[Step, ...]:
    """SIGKILL the master; consumers go on at the slave, and return with what they committed."""
    kill = f"{name}-kill"
    return (
        Step(do="look"),
        Step(do="start", name=kill, kind="kill", targets=("leader",), after_s=0.5),
        Step(do="stop", name=kill, after_s=down_s),
        Step(do="await", what="acks"),
        Step(do="await", what="healthy"),
    )


def link_cut(name: str, *, hold_s: float = 3.0) -> tuple[Step, ...]:
    """Cut the HA link: an asynchronous master goes on, a synchronous one says 12."""
    cut = f"{name}-cut"
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="stop", name=cut, after_s=hold_s),
        Step(do="await", what="healthy"),
        Step(do="await", what="acks"),
    )


def slave_behind(name: str, *, hold_s: float = 3.0) -> tuple[Step, ...]:
    """Freeze the slave until it is behind."""
    pause = f"{name}-pause"
    return (
        Step(do="look"),
        Step(do="start", name=pause, kind="pause", targets=("follower",), after_s=0.5),
        Step(do="stop", name=pause, after_s=hold_s),
        Step(do="await", what="healthy"),
    )


def both_back(name: str, first: str, second: str) -> tuple[Step, ...]:
    """SIGKILL both; they are started in the order that is asked for."""
    one, other = f"{name}-{first}", f"{name}-{second}"
    return (
        Step(do="look"),
        Step(do="start", name=other, kind="kill", targets=(second,), after_s=0.5),
        Step(do="start", name=one, kind="kill", targets=(first,), after_s=0.3),
        Step(do="stop", name=one, after_s=0.5),
        Step(do="stop", name=other, after_s=1.0),
        Step(do="await", what="acks"),
        Step(do="await", what="healthy"),
    )


def disk_lost(name: str, *, cut_s: float = 0.7) -> tuple[Step, ...]:
    """The master's disk is lost while the slave does not hear it; the slave is made the master.

    1. The HA link is cut: what the master takes now lies nowhere else. An asynchronous one
       acknowledges it.
    2. The master is killed, and its disk is gone. What it sent into the cut link is, too.
    3. The slave is stopped and started as the master; the old one comes back with nothing, as its
       slave.
    """
    cut, wipe = f"{name}-cut", f"{name}-wipe"
    return (
        Step(do="look"),
        Step(do="start", name=cut, kind="cut", targets=("leader", "follower"), after_s=0.5),
        Step(do="start", name=wipe, kind="wipe", targets=("leader",), after_s=cut_s),
        Step(do="stop", name=cut),
        Step(do="switch", targets=("follower",), after_s=3.0),
        Step(do="await", what="leader", within_s=20),
        Step(do="stop", name=wipe, after_s=2.0),
        Step(do="await", what="healthy"),
        Step(do="await", what="acks"),
    )


def slave_disk_lost(name: str) -> tuple[Step, ...]:
    """The slave's disk is lost; it comes back with nothing and gets everything again."""
    wipe = f"{name}-wipe"
    return (
        Step(do="look"),
        Step(do="start", name=wipe, kind="wipe", targets=("follower",), after_s=0.5),
        Step(do="stop", name=wipe, after_s=2.0),
        Step(do="await", what="healthy"),
        Step(do="await", what="acks"),
    )


def pair_demo(
    *, mode: str, seconds: float = ROUND_S, rate: float = 300.0, workload: str = "plain"
) -> Scenario:
    """Everything that happens to a pair, in rounds, for ``seconds``; the disk comes last."""
    rounds = max(1, round(seconds / ROUND_S))
    timeline: tuple[Step, ...] = ()
    for at in range(1, rounds + 1):
        mark = "" if rounds == 1 else f"{at}."
        timeline += master_back(f"{mark}1") + link_cut(f"{mark}2") + slave_behind(f"{mark}3")
        timeline += both_back(f"{mark}4", "follower", "leader")
        timeline += both_back(f"{mark}5", "leader", "follower") + disk_lost(f"{mark}6")
    return Scenario(
        name="demo",
        mode=mode,
        workload=replace(WORKLOADS[workload], rate=rate),
        timeline=timeline,
        coverage={"kill": 4, "cut": 2, "pause": 1, "wipe": 1},
        timeline_s_max=240.0 * rounds,
        crash_consumer_s=CONSUMER_CRASH_S,
    )


def disks(*, mode: str, rounds: int = 2, rate: float = 300.0, workload: str = "plain") -> Scenario:
    """Disks are lost again and again: the slave's, then the master's, and both change roles."""
    timeline: tuple[Step, ...] = ()
    for at in range(1, rounds + 1):
        timeline += slave_disk_lost(f"{at}.1") + disk_lost(f"{at}.2")
    return replace(
        pair_demo(mode=mode, rate=rate, workload=workload),
        name="disks",
        crash_consumer_s=None,
        timeline=timeline,
        coverage={"wipe": 2 * rounds, "cut": rounds},
        timeline_s_max=120.0 * rounds,
    )
