"""How many cases a property has: few in CI, as many as ``STORE_FAULT_CASES`` says otherwise."""

import os

from hypothesis import HealthCheck, Phase, settings

CASES = int(os.environ.get("STORE_FAULT_CASES", "0"))

settings.register_profile(
    "faults",
    deadline=None,
    max_examples=CASES or 150,
    suppress_health_check=[HealthCheck.too_slow],
    phases=set(Phase) - {Phase.explain},
)
