"""Any damage to any file: a start gives a beginning of the log, or refuses and names the place."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import DamagedEntry
from ledgermq.runtime.errors import FatalError
from sim.disk import SimDisk
from sim.rng import SplitRng
from tests.unit.store.plain.records import DIRECTORY, SEGMENT, T0, Log, size_of

COUNT = 12
BODY_AT = 88
NAMES = ("x", "0" * 19, "0" * 20, f"{SEGMENT:020}", f"{9 * SEGMENT:020}", "٣" * 20, "9" * 30)

DAMAGE = st.lists(
    st.one_of(
        st.tuples(
            st.just("flip"), st.integers(0, 4), st.integers(0, SEGMENT - 1), st.integers(1, 255)
        ),
        st.tuples(
            st.just("fill"), st.integers(0, 4), st.integers(0, SEGMENT - 1), st.binary(max_size=64)
        ),
        st.tuples(st.just("zero"), st.integers(0, 4), st.integers(0, SEGMENT - 1)),
        st.tuples(st.just("truncate"), st.integers(0, 4), st.integers(0, SEGMENT + 9)),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("stranger"), st.sampled_from(NAMES), st.binary(max_size=99)),
    ),
    max_size=3,
)
OPTIONS = st.fixed_dictionaries(
    {
        "clean": st.booleans(),
        "safe_timestamp_ms": st.sampled_from((0, T0 + 5, T0 + COUNT + 1)),
        "cut_damaged": st.booleans(),
        "clean_walk_bytes": st.sampled_from((500, 3000, 1 << 20)),
    }
)


def path(number):
    return f"{DIRECTORY}/{number * SEGMENT:020}"


def damage(disk, kind, *what):
    """Damage a file that is there, or make a stranger."""
    if kind == "stranger":
        name, data = what
        disk.replace(f"{DIRECTORY}/{name}", data)
        return
    number, *rest = what
    data = bytearray(disk.read(path(number)) or b"")
    if kind == "remove":
        disk.remove(path(number))
    elif kind == "truncate":
        disk.replace(path(number), bytes(data).ljust(SEGMENT + 9, b"\0")[: rest[0]])
    elif data:
        at = min(rest[0], len(data) - 1)
        new = {"flip": lambda m: bytes((data[at] ^ m,)), "fill": bytes, "zero": None}[kind]
        patch = bytes(200) if new is None else new(rest[1])
        data[at : at + len(patch)] = patch
        disk.replace(path(number), bytes(data[:SEGMENT]))


def written(disk):
    """A log of some segments; two or three records in each."""
    log = Log(disk)
    for number in range(COUNT):
        log.put(body=b"%d." % number * (300 + 50 * number), stored=T0 + number)
    log.flush()
    log.sync()
    entries = log.entries()
    log.files.close()
    return entries


def attempt(action):
    """Return what comes of it, or the refusal; anything else is a bug."""
    try:
        return action()
    except (FatalError, LookupError, DamagedEntry) as refusal:
        return refusal


@settings(max_examples=300)
@given(DAMAGE, OPTIONS)
def test_damaged_log_gives_what_is_sound_or_is_refused_by_name(damages, options):
    disk = SimDisk(SplitRng(1))
    before = written(disk)
    for kind, *what in damages:
        damage(disk, kind, *what)
    log = attempt(lambda: Log(disk, **options))
    if isinstance(log, FatalError):
        assert log.exit_code == 2
        assert DIRECTORY in log.message
        return
    for at, body in before:
        found = attempt(partial(log.body_at, at, len(body)))
        if isinstance(found, LookupError | DamagedEntry):
            continue
        assert found[BODY_AT : BODY_AT + 4] == body[BODY_AT : BODY_AT + 4]
        assert len(found) == len(body)
    walked = attempt(log.entries)
    if isinstance(walked, DamagedEntry):
        assert DIRECTORY in str(walked)
    else:
        assert {at for at, _ in walked} <= {at for at, _ in before}
    goes_on = log.put(body=b"new")
    assert goes_on >= log.end_position - SEGMENT
    assert log.flush() is None
    assert bytes(log.last_body())[BODY_AT : BODY_AT + 3] == b"new"
    log.sync()
    log.files.close()
    again = attempt(lambda: Log(disk, **{**options, "cut_damaged": False}))
    if isinstance(again, FatalError):
        assert "is damaged at offset" in again.message  # it walks more than the first start did
    else:
        assert again.end_position == goes_on + size_of(body=b"new")
