"""Fixtures of more than one file."""

import pytest

from tests.unit.sim.fault_world import FaultWorld


@pytest.fixture
def make():
    """Make worlds for faults, whose faults come as planned."""
    worlds = []

    def made(*events, **options):
        worlds.append(FaultWorld(*events, **options))
        worlds[-1].nemesis.start()
        return worlds[-1]

    yield made
    for world in worlds:
        world.loop.close()
