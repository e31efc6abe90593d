"""Which checks can be asked while a run goes on, and whether their answer can be taken back.

An anomaly is irrevocable if nothing that is recorded later explains it away. Of those some need
nothing but what is recorded while clients run: they alarm. Source: spec/proof.md 3.0 (IR, RV).
"""

from collections.abc import Mapping
from typing import Final

from chaos.catalogue.checks import CHECKS

IRREVOCABLE: Final = frozenset({
    "A2", "A5", "A6", "A7", "A11", "A15", "A17", "A19", "A26", "A30", "A31", "A32", "A33", "A34",
    "A35", "A36", "A37", "A38", "A53", "A54", "A56",
})  # fmt: skip
"""What is true from the moment that it is seen."""
ALARMS: Final[Mapping[str, str]] = {
    "A5": "as soon as all that was sent before the delivery is read",
    "A6": "at once",
    "A7": "at once",
    "A11": "at once",
    "A15": "at once, by acknowledgements and deliveries; logs are read after the run",
    "A17": "at once, by the calls of orderly listeners; shards are looked at after the run",
    "A30": "at once, by what nodes answer",
    "A32": "at once, by what nodes answer, unless a fault of the plan takes a node's memory",
    "A33": "at once, by what nodes answer",
    "A53": "at once",
    "A54": "as soon as all that was decided before the delivery is read",
    "A56": "at once, unless a fault of the plan moves clocks",
}
"""What alarms while a run goes on, and when."""
WHOLLY: Final = frozenset({"A5", "A53", "A54", "A56"})
"""What the verdict of a run finds by nothing else than what was recorded while it went on."""
SUSPECTS: Final[Mapping[str, str]] = {
    "A1": "acknowledged and not delivered after 10 s",
    "A4": "acknowledged and not delivered yet",
    "A55": "told by the verdict: a committed message may still come",
}
"""What can be taken back until queues are drained, and what is told of it."""

assert ALARMS.keys() <= IRREVOCABLE <= CHECKS.keys(), "an alarm cannot be taken back"
assert ALARMS.keys() >= WHOLLY, "what is no alarm is not missed"
assert not SUSPECTS.keys() & IRREVOCABLE, "a suspect can be taken back"
