"""RocketMQ's sample clusters as containers: all that was acknowledged outlives a killed master."""

import asyncio
import io

import pytest
from rich.console import Console

from chaos.samples import SAMPLES, walk

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("name", SAMPLES)
def test_a_killed_master_loses_nothing(name: str) -> None:
    screen = io.StringIO()
    assert asyncio.run(walk(name, Console(file=screen))) == 0, screen.getvalue()
    assert "Verdict: VALID" in screen.getvalue()
