"""Faults as they are applied: whom they meet, what they do, that they end, what witnesses them."""

import pytest
from msgspec import structs

from sim.faults.apply import RETRIES, RETRY_MS
from sim.faults.plan import FaultKind, Package
from sim.inode import PowerLossMode
from tests.unit.sim.fault_world import FaultWorld, Node, event


class Leader(Node):
    """Carries out what it is asked."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    async def change_membership(self, change):
        await super().change_membership(change)
        others = tuple(name for name in self.world.voters if name != change.node_id)
        if change.kind.value == "promote":
            self.world.voters = (*others, change.node_id)
        elif change.kind.value == "remove":
            self.world.voters = others


def outcome(world, number=0):
    one = world.nemesis.applied[number]
    return one.status, one.names, one.effective


# Roles


@pytest.mark.parametrize(
    ("role", "found"),
    [
        ("leader", ("n1",)),
        ("ex_leader", ("n0",)),
        ("follower0", ("n0",)),
        ("follower1", ("n2",)),
        ("most_behind", ("n2",)),
        ("all", ("n0", "n1", "n2")),
        ("producer", ("p0",)),
        ("consumer", ("c0",)),
        ("namesrv", ("ns0",)),
        ("n2", ("n2",)),
    ],
)
def test_role_is_resolved_when_the_fault_is_due(make, role, found):
    world = make(event("crash", target=role))
    world.run(500)
    world.who_leads = "n1"
    world.replicas["n2"].terms.pop()
    world.run(1_500)
    assert outcome(world) == ("active", found, True)


def test_random_role_depends_on_the_event_alone(make):
    names = {make(event("crash", target=r), event("pause")).nemesis for r in ("random", "follower")}
    for nemesis in names:
        nemesis._target.run(1_100)
    chosen = [nemesis.applied[0].names[0] for nemesis in names]
    assert all(name in {"n0", "n1", "n2"} for name in chosen)
    assert "n0" not in [
        n.applied[0].names[0] for n in names if n.applied[0].event.target != "random"
    ]


def test_without_a_leader_any_voter_plays_it(make):
    world = make(event("crash"))
    world.who_leads = None
    world.run(1_100)
    assert outcome(world)[1][0] in {"n0", "n1", "n2"}


# Partitions


@pytest.mark.parametrize(
    ("fault", "brokers", "cut"),
    [
        (event("isolate", target="n1"), 3, ({"n0n1", "n1n2"}, set())),
        (event("bridge", middle="leader"), 3, ({"n1n2"}, set())),
        (event("one_way", target="n1", side="to"), 3, (set(), {"n0>n1", "n2>n1"})),
        (event("one_way", target="n1", side="from"), 3, (set(), {"n1>n0", "n1>n2"})),
        (event("leader_minority"), 3, ({"n0n1", "n0n2"}, set())),
    ],
)
def test_partition_cuts_its_shape_and_heals_it(make, fault, brokers, cut):
    world = make(fault, brokers=brokers)
    world.run(999)
    assert world.cuts() == (set(), set())
    world.run(1_500)
    assert world.cuts() == cut
    world.run(2_001)
    assert world.cuts() == (set(), set())
    assert world.nemesis.applied[0].status == "over"


@pytest.mark.parametrize(
    ("kind", "brokers", "links"),
    [
        ("halves", 3, 2),
        ("halves", 5, 6),
        ("leader_majority", 3, 2),
        ("leader_majority", 5, 6),
        ("leader_minority", 5, 6),
        ("isolate", 5, 4),
        ("ring", 4, 2),
        ("ring", 5, 5),
        ("bridge", 5, 4),
    ],
)
def test_partition_of_more_brokers_leaves_the_links_it_should(make, kind, brokers, links):
    world = make(event(kind), brokers=brokers)
    world.run(1_500)
    cut, one_way = world.cuts()
    assert (len(cut), one_way) == (links, set())
    sides = [sum(name in pair for pair in cut) for name in world.names]
    if kind == "ring":
        assert len(set(sides)) == 1, "each sees two neighbours"
    if kind == "leader_minority":
        assert sides[0] == 3
    if kind == "leader_majority":
        assert sides[0] == brokers // 2
    if kind == "bridge":
        assert sides.count(0) == 1


def test_follower_in_the_middle_of_a_bridge(make):
    world = make(event("bridge", middle="follower"))
    world.run(1_500)
    assert world.cuts()[0] in ({"n0n1"}, {"n0n2"})


def test_ring_of_three_would_be_an_outage_and_is_skipped(make):
    world = make(event("ring"))
    world.run(1_000 + RETRY_MS * (RETRIES + 1))
    assert outcome(world) == ("skipped: a ring needs 4 brokers", (), False)


def test_link_stays_cut_until_all_that_cut_it_have_ended(make):
    world = make(
        event("isolate", target="n1", for_ms=1_000),
        event("isolate", target="n2", at_ms=1_500, for_ms=1_000),
    )
    world.run(2_200)
    assert world.cuts()[0] == {"n0n2", "n1n2"}
    world.run(2_600)
    assert world.cuts()[0] == set()


def test_client_is_cut_from_all_servers(make):
    world = make(event("client_cut", target="producer"))
    world.run(1_500)
    for server in ("n0", "n1", "n2", "ns0"):
        assert world.is_cut("p0", server)
        assert world.is_cut(server, "p0")
        assert not world.is_cut("c0", server)


def test_flapping_ends_healed(make):
    world = make(event("flap", target="n1", period_ms=100, for_ms=1_000))
    seen = []
    for at_ms in range(1_050, 2_000, 100):
        world.run(at_ms)
        seen.append(world.cuts()[0] != set())
    assert seen == [True, False] * 5
    world.run(3_000)
    assert world.cuts()[0] == set()


def test_slow_links_are_as_fast_as_before_afterwards(make):
    slow = event("delay", target="n1", base_ms=100, spread_ms=10, loss=0.05)
    slower = event("delay", target="n1", at_ms=1_500, for_ms=1_000, base_ms=400)
    world = make(slow, slower)
    link = world.network.link(world.hosts["n1"].address, world.hosts["n2"].address)
    found = []
    for at_ms in (900, 1_200, 1_700, 2_200, 2_600):
        world.run(at_ms)
        found.append((link.delay.base_us, link.delay.loss))
    usual = world.network.delay_default
    assert found == [
        (usual.base_us, 0.0), (100_000, 0.05), (400_000, 0), (400_000, 0), (usual.base_us, 0.0),
    ]  # fmt: skip


def test_what_is_far_from_the_beginning_is_no_fault(make):
    """What is judged in calm times is judged of those who are far away as well."""
    far = structs.replace(event("delay", target="n1", base_ms=50), package=Package.FAR)
    for one, is_calm in ((far, True), (event("delay", target="n1", base_ms=50), False)):
        world = make(one)
        nemesis, asked_ms = world.nemesis, 60_000
        world.run(one.at_ms + 10)
        assert nemesis.applied[0].status == "active"
        told = [
            nemesis.any_ms(asked_ms), nemesis.disturbed_ms(asked_ms),
            nemesis.touched_ms(["n1"], asked_ms),
        ]  # fmt: skip
        assert (told == [0, 0, 0]) is is_calm, told
        assert nemesis.spares([], 0) is is_calm
        nemesis.heal_all()
        assert (nemesis.any_ms(asked_ms) == 0) is is_calm


@pytest.mark.parametrize("kind", ["drop", "duplicate", "reorder", "replay", "corrupt"])
def test_frames_are_treated_on_the_links_of_one_broker(make, kind):
    world = make(event(kind, target="n1", messages="votes", side="to", probability=0.5))
    world.run(1_500)
    address = world.stage_address = {n: h.address for n, h in world.hosts.items()}
    rules = [
        (rule.source, rule.target, rule.probability)
        for link in world.network.links.values()
        for rule in link.rules
    ]
    to = [world.network.link(address[a], address["n1"]).rules for a in ("n0", "n2")]
    assert [len(one) for one in to] == [1, 1]
    assert world.network.link(address["p0"], address["n1"]).rules == []
    assert world.network.link(address["n1"], address["n0"]).rules == []
    assert all(probability == 0.5 for _, _, probability in rules)
    world.run(2_100)
    assert world.network.link(address["n0"], address["n1"]).rules == []


# Processes


def test_crashed_process_is_started_again_when_the_fault_ends(make):
    world = make(event("crash", target="n1"))
    world.run(1_500)
    assert not world.hosts["n1"].alive
    world.run(2_100)
    assert world.log == ["end n1", "start n1"]
    assert outcome(world) == ("over", ("n1",), True)


def test_crash_of_what_is_down_does_not_count(make):
    world = make(event("crash", target="n1"), event("crash", at_ms=1_100, for_ms=10, target="n1"))
    world.run(3_000)
    assert [one.effective for one in world.nemesis.applied] == [True, False]
    assert world.nemesis.effective() == {"crash": 1}
    assert world.nemesis.skipped() == {"crash": 1}


def test_crash_loop_ends_alive(make):
    world = make(event("crash_loop", target="n1", count=3, period_ms=200, for_ms=3_000))
    world.run(5_000)
    assert world.log == ["end n1", "start n1"] * 3
    assert world.nemesis.applied[0].during == 3


def test_all_restart_at_once(make):
    world = make(event("restart_all", target="all"))
    world.run(1_500)
    assert not any(world.hosts[name].alive for name in world.voters)
    world.run(2_500)
    assert all(world.hosts[name].alive for name in world.voters)


def test_trap_closes_once_and_the_process_is_started_again(make):
    trap = event("crash_at", target="all", op="rename", glob="*/currterm*", when="before",
                 down_ms=300, for_ms=5_000)  # fmt: skip
    world = make(trap)
    world.run(1_500)
    disk = world.disk("n1")
    process = world.hosts["n1"].process
    world.loop.call_soon(lambda: disk.replace("/currterm", b"5"), context=process.context)
    world.run(1_510)
    assert not world.hosts["n1"].alive
    assert disk.read("/currterm") is None
    world.run(2_500)
    assert world.hosts["n1"].alive
    world.disk("n2").replace("/currterm", b"6")
    world.run(7_000)
    assert outcome(world) == ("over", ("n0", "n1", "n2"), True)


def test_paused_process_goes_on(make):
    world = make(event("pause", target="n2"))
    world.run(1_500)
    assert world.hosts["n2"].paused
    world.run(2_500)
    assert not world.hosts["n2"].paused
    assert outcome(world)[2]


def test_dead_process_is_not_paused_and_that_does_not_count(make):
    world = make(event("crash", target="n2"), event("pause", at_ms=1_100, for_ms=100, target="n2"))
    world.run(3_000)
    assert outcome(world, 1) == ("over", ("n2",), False)


# Disks


def write(world, name, content=b"x"):
    world.disk(name).open("/f", size=4096).pwrite(0, [content])


def test_power_loss_takes_what_is_unsynced(make):
    world = make(event("power_loss", target="n1", mode="lost"))
    write(world, "n1")
    world.run(1_500)
    assert world.disk("n1").open("/f", size=4096).pread(0, 1) == b"\0"
    world.run(2_500)
    assert outcome(world) == ("over", ("n1",), True)


def test_power_loss_waits_until_a_majority_of_the_others_holds_all(make):
    world = make(event("power_loss", target="n1", mode="lost"))
    write(world, "n1")
    world.replicas["n1"].terms.append(1)
    world.replicas["n0"].terms.append(1)
    world.run(1_500)
    assert outcome(world) == ("planned", (), False)
    world.replicas["n2"].terms.append(1)
    world.run(1_600)
    assert outcome(world)[0] == "active"


def test_power_loss_that_takes_back_a_change_of_the_voters_counts_those_before(make):
    world = make(event("power_loss", target="n1", mode="lost"))
    write(world, "n1")
    world.changed_from = (1, ("n1",))  # before it this one was the group
    for name in ("n0", "n1", "n2"):
        world.replicas[name].terms += [1, 1]
    world.run(5_000)
    assert outcome(world) == ("skipped: only 0 of 1 others hold all of it", (), False)


def test_power_loss_that_would_lose_an_acknowledged_entry_is_skipped(make):
    world = make(event("power_loss", target="n1", mode="lost"))
    write(world, "n1")
    world.replicas["n2"].is_up = False
    world.run(5_000)
    assert outcome(world) == ("skipped: only 1 of 3 others hold all of it", (), False)
    assert not world.nemesis.is_exceeded


def test_overkill_does_it_all_the_same_and_says_so(make):
    world = make(event("power_loss", target="n1", mode="lost"), overkill=True)
    write(world, "n1")
    world.replicas["n2"].is_up = False
    world.run(1_500)
    assert outcome(world)[0] == "active"
    assert world.nemesis.is_exceeded


def test_what_is_synced_may_lose_power_anywhere(make):
    everyone = event("power_loss_all", target="all", mode="torn")
    world = make(everyone, flush_disk_type="SYNC_FLUSH")
    for name in world.voters:
        write(world, name)
    world.run(1_500)
    assert outcome(world) == ("active", ("n0", "n1", "n2"), True)


def test_entries_of_its_own_term_were_acknowledged_by_no_leader(make):
    """So the leader may lose them although nobody else has them."""
    world = make(event("power_loss", target="n0", mode="lost"))
    write(world, "n0")
    world.replicas["n0"].terms += [2, 2]
    world.run(1_100)
    assert outcome(world)[0] == "active"


def test_failed_sync_makes_a_later_power_loss_a_damage(make):
    world = make(
        event("eio", target="n1", op="sync", count=1),
        event("power_loss", at_ms=1_500, target="n1", mode="lost"),
        flush_disk_type="SYNC_FLUSH",
    )
    file = world.disk("n1").open("/f", size=4096)
    world.replicas["n2"].is_up = False
    world.run(1_100)
    file.pwrite(0, [b"x"])
    with pytest.raises(OSError, match="fault"):
        file.fdatasync()
    world.run(5_000)
    assert outcome(world, 1)[0].startswith("skipped: only 1")
    assert outcome(world, 0)[2]
    assert world.nemesis.explains("n1")
    assert not world.nemesis.explains("n0")


def test_wipe_needs_others_that_are_not_fresh(make):
    world = make(event("wipe", target="n1"))
    write(world, "n1")
    world.fresh.append("n2")
    world.run(1_500)
    assert outcome(world)[0] == "planned"
    world.fresh.clear()
    world.run(1_600)
    assert world.disk("n1").paths() == []


@pytest.mark.parametrize("how", ["runs", "is down"])
def test_wipe_waits_while_a_former_member_is_empty(make, how):
    """Both would know the first three voters alone, and be two of them."""
    world = make(event("wipe", target="n1"), spares=1)
    write(world, "n1")
    world.voters = ("n0", "n1", "n3")
    world.start("n3")
    if how == "runs":
        world.fresh.append("n2")
    else:
        world.replicas["n2"].is_wiped = True
    world.run(1_500)
    assert outcome(world)[0] == "planned"
    world.fresh.clear()
    world.replicas["n2"].is_wiped = False
    world.run(1_600)
    assert world.disk("n1").paths() == []


def test_corruption_flips_a_synced_byte_of_one_replica_only(make):
    world = make(
        event("bit_rot", target="n1", glob="*/data/*", bytes=1),
        event("bit_rot", at_ms=1_200, target="n2", glob="*/data/*", bytes=1),
    )
    for name in ("n1", "n2"):
        disk = world.disk(name)
        disk.make_directories("/s/data")
        file = disk.open("/s/data/0", size=4096)
        file.pwrite(0, [b"\x55" * 1000])
        file.fdatasync()
    world.run(4_000)
    corrupt = world.disk("n1").open("/s/data/0", size=4096).pread(0, 1000)
    assert sum(bin(byte ^ 0x55).count("1") for byte in corrupt) == 1
    assert outcome(world, 1)[0] == "skipped: another replica has corrupt bytes"
    assert world.corruption_excused == ["n1"]
    assert world.nemesis.corrupt() == ("n1",)


def test_a_process_starts_again_on_spoiled_queues_and_a_sound_log(make):
    world = make(event("spoil", target="n1", glob="*/consumequeue/*", bytes=2, for_ms=500))
    disk = world.disk("n1")
    files = {}
    for name in ("consumequeue", "data"):
        disk.make_directories(f"/s/{name}")
        files[name] = disk.open(f"/s/{name}/0", size=4096)
        files[name].pwrite(0, [b"\x55" * 1000])
        files[name].fdatasync()
    world.run(3_000)
    assert world.log == ["end n1", "start n1"]
    found = {name: disk.read(f"/s/{name}/0")[:1000] for name in files}
    assert found["data"] == b"\x55" * 1000
    assert sum(bin(byte ^ 0x55).count("1") for byte in found["consumequeue"]) == 2
    assert world.corruption_excused == []
    assert world.nemesis.corrupt() == ()


@pytest.mark.parametrize("target", ["n1", "all"])
def test_full_disk_is_freed(make, target):
    world = make(event("disk_full", target=target, free_bytes=0))
    world.run(1_500)
    with pytest.raises(OSError, match="no space"):
        write(world, "n1")
    world.run(2_500)
    write(world, "n1")
    assert outcome(world)[2]


def test_slow_and_hung_disks_recover(make):
    world = make(
        event("slow_disk", target="n1", op="sync", ms=10),
        event("hung_disk", target="n2", op="sync", glob="*"),
    )
    world.run(1_500)
    for name in ("n1", "n2"):
        world.disk(name).replace("/x", b"1")
    assert world.disk("n2").blocked
    world.run(2_500)
    assert not world.disk("n2").blocked
    assert [one.effective for one in world.nemesis.applied] == [True, True]


def test_lying_disk_is_beyond_any_contract(make):
    world = make(event("lying_sync"))
    world.run(4_000)
    assert outcome(world)[0].startswith("skipped: no contract")


# Clocks


def test_clocks_jump_drift_and_strobe(make):
    world = make(
        event("clock_jump", target="n0", ms=-30_000, for_ms=100),
        event("clock_drift", target="n1", rate=2.0),
        event("clock_strobe", target="n2", ms=500, period_ms=100, for_ms=950),
    )
    clocks = [world.hosts[name].clock for name in world.names]
    world.run(1_050)
    assert [clocks[0].wall_offset_ms, clocks[1].rate, clocks[2].wall_offset_ms] == [
        -30_000,
        2.0,
        500,
    ]
    world.run(2_100)
    assert [clocks[1].rate, clocks[2].wall_offset_ms] == [1.0, 0]
    assert all(one.effective for one in world.nemesis.applied)
    world.nemesis.heal_all()
    assert clocks[0].wall_offset_ms == 0


# Members


def test_operator_insists_until_it_is_done(make):
    world = make(event("add", for_ms=5_000), spares=1)
    world.node("n0").refusals = 3
    world.run(4_000)
    address = world.peer_address("n3")
    assert world.node("n0").asked == [("add_learner", "n3", address), ("promote", "n3", "")]
    assert world.hosts["n3"].alive
    assert world.nemesis.applied[0].effect.steps == 2


def test_replace_adds_then_removes(make):
    world = make(event("replace", target="n1", for_ms=5_000), spares=1)
    world.nodes["n0"] = Leader(world)
    world.run(4_000)
    assert world.voters == ("n0", "n2", "n3")
    assert [kind for kind, *_ in world.node("n0").asked] == ["add_learner", "promote", "remove"]


def test_members_are_not_changed_so_that_too_few_could_vote(make):
    """Of five voters two are fresh; without a third one the other two would never elect."""
    world = make(event("remove", target="n4", for_ms=5_000), brokers=5)
    world.fresh += ["n1", "n2"]
    world.run(3_000)
    assert world.node("n0").asked == []
    assert world.nemesis.applied[0].effect.refusal == "only 2 of 4 voters could vote"
    world.fresh.clear()
    world.run(4_000)
    assert world.node("n0").asked == [("remove", "n4", "")]


def test_two_operators_do_not_remove_too_many_together(make):
    world = make(
        event("remove", target="n1", for_ms=9_000),
        event("remove", at_ms=1_100, for_ms=1_500, target="n2"),
        brokers=5,
    )
    world.voters = world.voters[:4]
    world.nodes["n0"] = Leader(world)
    world.who_leads = None
    world.run(1_150)
    world.who_leads = "n0"
    world.run(5_000)
    assert world.voters == ("n0", "n2", "n3")
    assert world.nemesis.applied[1].effect.refusal == "too few would be left"


def test_too_few_members_are_not_made_fewer(make):
    world = make(event("remove", target="n1"), event("add"))
    world.run(5_000)
    assert outcome(world, 0)[0] == "skipped: too few would be left"
    assert outcome(world, 1)[0] == "skipped: all brokers are members"


def test_leadership_is_handed_over(make):
    world = make(event("transfer", target="follower1"))
    world.run(3_000)
    assert world.node("n0").asked == [("transfer", "n2")]
    assert outcome(world)[2]


def test_nobody_is_asked_while_nobody_leads(make):
    world = make(event("transfer", target="n1"))
    world.who_leads = None
    world.run(3_000)
    assert outcome(world) == ("over", ("n1",), False)
    assert world.nemesis.applied[0].effect.refusal == "nobody leads"


# The end


def test_heal_all_takes_everything_back(make):
    long = 60_000
    world = make(
        event("isolate", target="n0", for_ms=long),
        event("crash", target="n1", for_ms=long),
        event("pause", target="n2", for_ms=long),
        event("pause", target="n2", at_ms=1_100, for_ms=long),
        event("disk_full", target="n0", for_ms=long, free_bytes=0),
        event("hung_disk", target="n0", for_ms=long, op="sync"),
        event("clock_drift", target="n0", for_ms=long, rate=0.5),
        event("client_crash", target="producer", for_ms=long),
        event("crash", target="n0", at_ms=50_000),
    )
    world.run(2_000)
    world.nemesis.heal_all()
    assert world.cuts() == (set(), set())
    assert all(host.alive and not host.paused for host in world.hosts.values())
    assert not world.disk("n0").is_watched
    assert world.hosts["n0"].clock.rate == 1.0
    world.run(60_000)
    assert outcome(world, 8)[0] == "skipped: the faults are over"
    assert all(host.alive for host in world.hosts.values())


def test_heal_of_a_majority_leaves_the_others_down(make):
    world = make(event("crash", target="n1", for_ms=60_000), event("pause", target="n2"))
    world.run(1_500)
    for one in world.nemesis.applied:
        one.status = "kept"
    world.nemesis.heal_all(names=("n0", "n2"))
    assert [world.hosts[name].alive for name in world.voters] == [True, False, True]


def test_spare_that_was_never_started_stays_off(make):
    world = make(spares=1)
    world.nemesis.heal_all()
    assert not world.hosts["n3"].alive


def test_replica_too_corrupt_to_start_gets_an_empty_disk(make):
    world = make(event("bit_rot", target="n1", glob="*", bytes=1))
    file = world.disk("n1").open("/f", size=4096)
    file.pwrite(0, [b"x"])
    file.fdatasync()
    world.run(2_500)
    world.nemesis.heal_all()
    for _ in range(2):
        world.crash("n1")
        world.start("n1")
    world.run(5_000)
    assert world.disk("n1").paths() == []
    assert world.hosts["n1"].alive


def test_every_fault_leaves_its_marks_in_the_trace(make):
    world = FaultWorld(event("crash", target="follower0"))
    world.trace.keep_lines = True
    world.nemesis.start()
    world.run(3_000)
    lines = [line.split(" ", 1)[1] for line in world.trace.lines if " fault " in line]
    assert lines == [
        "fault n1 what=on number=0 fault=crash role=follower0 witness=0",
        "fault n1 what=off number=0 fault=crash role=follower0 witness=1",
    ]
    world.loop.close()


def test_all_kinds_can_be_applied_with_their_defaults(make):
    """No kind needs a parameter that a hand-written plan might leave out."""
    needs = {FaultKind.EIO: {"op": "sync"}, FaultKind.CRASH_AT: {"op": "sync"}}
    for kind in FaultKind:
        world = make(event(kind, **needs.get(kind, {})), brokers=5, spares=1, overkill=True)
        write(world, "n0")
        world.run(4_000)
        world.nemesis.heal_all()
        assert outcome(world)[0] in {"over", "active"} or "skipped" in outcome(world)[0]


def test_power_loss_modes_are_those_of_the_disk(make):
    for mode in PowerLossMode:
        world = make(event("power_loss", target="n1", mode=mode.value))
        world.run(1_500)
        assert outcome(world)[0] == "active"


def test_process_that_takes_long_to_stop_is_started_when_it_is_gone(make):
    world = make(event("stop", target="n1", for_ms=500))
    world.stop = lambda name: None
    world.run(1_600)
    world.nemesis.heal_all()
    world.run(9_000)
    world.crash("n1")
    world.run(9_200)
    assert world.hosts["n1"].alive
