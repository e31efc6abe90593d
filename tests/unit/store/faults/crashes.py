"""A day in the life of a broker, to be cut short at any step that its disk makes.

`live` is the script: sends, batches, state records, checkpoints, rolls of every kind of file,
trimming, a clean stop and a start. `Case` plays it on a disk that ends the process at one step, and
lets recovery meet the same.
"""

from dataclasses import dataclass
from random import Random

from ledgermq.runtime.errors import FatalError
from sim.disk_rules import Action, Rule
from sim.inode import PowerLossMode
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.stores import KEY_COUNT, KEYS, WORDS, propose_offset
from tests.unit.store.faults.world import ROOT, Cluster, check, no_hang

NEVER = 1 << 40


def live(cluster):
    """Play the script for as long as the broker lives."""
    for day in range(2):
        for part in (b"morning", b"noon", b"evening"):
            for number in range(4):
                send(cluster, b"%d %s %d" % (day, part, number))
            cluster.run_for(350)
            if part == b"noon":
                compact(cluster)
        if cluster.is_alive():
            cluster.stop()
            cluster.start()
            if not cluster.is_alive():
                return


def send(cluster, tag):
    cluster.put_many(
        [
            (f"t{k % 2}", k % 3 // 2, tag + b" %d " % k * (3 + 3 * k), WORDS % (k, k))
            for k in range(6)
            if cluster.is_alive()
        ]
    )
    propose_offset(cluster)
    cluster.put_batch("b", 0, [tag + b" batch %d" % k for k in range(2)])
    cluster.run_for(20)


def compact(cluster):
    """Trim the log as far as it may be."""
    if cluster.is_alive():
        process = cluster.hosts["n0"].process
        retained = cluster.brokers["n0"]._mode.retained
        segments = retained.segments()
        if not segments:
            return
        done = []

        async def run():
            try:
                await retained.drop_before(segments[-1].start)
            except FatalError as error:  # as the dispatcher of requests does
                cluster.loop.call_exception_handler({"message": str(error), "exception": error})
            done.append(True)

        cluster.loop.spawn(process, run())
        assert cluster.loop.run_until_true(lambda: done or not process.alive, 5_000)
        if process.alive:
            cluster.begins.add(cluster.log().first_position)


def reference(**options):
    """Play the script whole; returns how many steps its disk made, and where the log ever began."""
    disk = disk_of({})
    rule = disk.add_rule(Rule(action=Action.CRASH_BEFORE, skip=NEVER))
    cluster = Cluster({"n0": disk}, **options)
    cluster.start()
    live(cluster)
    found = cluster.read()
    assert cluster.error() is None
    assert len(found) >= 4
    assert len(cluster.begins) == 3, "trimmed twice"
    cluster.close()
    return NEVER - rule.skip, cluster.begins


@dataclass
class Case:
    """One way of it to end."""

    step: int
    """At which step of the disk the process ends."""
    seed: int
    """Of how, and of what happens to the restarts."""
    options: dict

    def run(self, begins):
        """Let it happen; ``begins``: of `reference`."""
        random = Random(self.seed * 1_000_003 + self.step)
        disk = disk_of({})
        cluster = Cluster({"n0": disk}, **self.options)
        with no_hang():
            try:
                self._crash(disk, random, self.step)
                cluster.start()
                live(cluster)
                self._lose_power(disk, cluster, random)
                while random.random() < 0.6:  # now recovery itself is cut short
                    self._crash(disk, random, random.randrange(40))
                    cluster.start()
                    self._lose_power(disk, cluster, random)
                disk.heal()
                self._check(cluster, disk)
                first = cluster.log().first_position
                assert first in begins or (not cluster.raft and first <= max(begins)), first
            finally:
                cluster.close()

    def _crash(self, disk, random, step):
        disk.heal()
        action = random.choice((Action.CRASH_BEFORE, Action.CRASH_AFTER))
        disk.add_rule(Rule(action=action, skip=step, count=1))

    def _lose_power(self, disk, cluster, random):
        cluster.kill()
        if random.random() < 0.75:
            disk.power_loss(random.choice(list(PowerLossMode)), random.randrange(1 << 30))

    def _check(self, cluster, disk):
        error = cluster.start()
        assert error is None, error
        assert cluster.is_writable()
        found = check_service(cluster)
        again = restarted(image(disk), self.options)
        assert filled(again) == filled(found), "what is dispatched from the log differs"
        cluster.put_many([("t0", 0, b"afterwards", b""), ("new", 0, b"afterwards too", b"")])
        assert cluster.stop() is None
        assert cluster.start() is None
        later = check_service(cluster)
        for place, queue in found.items():
            assert contents(later[place])[: len(queue)] == contents(queue), place
        assert later["new", 0][0].body == b"afterwards too"


def check_service(cluster):
    """Check that all that was acknowledged is there, and nothing else but what was sent."""
    found = cluster.read()
    broker = cluster.brokers["n0"]
    begin = cluster.log().first_position
    check(found, cluster.sent, acknowledged=False)
    for (*place, offset), (physical, body) in cluster.sent.acknowledged.items():
        if physical >= begin:
            assert found[tuple(place)][offset].body == body, (place, offset)
    bodies = {message.body for queue in found.values() for message in queue.values()}
    trimmed = {body for physical, body in cluster.sent.acknowledged.values() if physical < begin}
    for sent in cluster.sent.lives:
        is_there = [body in bodies or body in trimmed for body in sent]
        assert is_there == sorted(is_there, reverse=True), "not a beginning of what was sent"
    check_keys(cluster, found)
    committed = broker.tables.offsets.query("TOOLS_CONSUMER", "OFFSET_MOVED_EVENT", 0)
    low, high = len(cluster.sent.states), cluster.sent.proposed
    assert low - 1 <= (-1 if committed is None else committed) < high, (low, committed, high)
    return found


def check_keys(cluster, found, *, whole=True):
    """Compare queries by key with what the queues have; ``whole``: they must find all of it."""
    begin = cluster.log().first_position
    topics = {topic for topic, _ in found}
    for topic in topics:
        for number in range(KEY_COUNT):
            at = {message.physical_offset for message in cluster.find_by_key(topic, f"k{number}")}
            expected = {
                message.physical_offset
                for (of, _), queue in found.items()
                for message in queue.values()
                if of == topic and message is not None and KEYS % number in message.properties
            }
            assert at <= expected, (topic, number, at - expected)
            if whole:
                newest = {place for place in expected if place >= begin}
                assert at == newest or len(at) == 64, (topic, number, newest - at)


def restarted(files, options):
    """Return what a broker reads that has nothing but the log."""
    derived = ("consumequeue", "checkpoint", "index", *(["config"] if options.get("raft") else []))
    gone = tuple(f"{ROOT}/{name}" for name in derived)
    kept = {path: data for path, data in files.items() if not path.startswith(gone)}
    cluster = Cluster({"n0": disk_of(kept)}, **options)
    try:
        assert cluster.start() is None
        return cluster.read()
    finally:
        cluster.close()


def filled(found):
    """Leave out queues without messages: of those that were trimmed away, the log knows nothing."""
    return {place: queue for place, queue in found.items() if queue}


def contents(queue):
    return [(offset, message.body) for offset, message in queue.items()]
