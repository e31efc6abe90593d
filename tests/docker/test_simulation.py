"""A simulated run is the same on another machine: another Python, C library, host name and user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (1, 7, 238, 570)
CONTAINER = (
    *("docker", "run", "--rm", "--network", "none", "--hostname", "elsewhere", "--user", "4321"),
    *("-e", "PYTHONHASHSEED=7", "-e", "TZ=Asia/Kathmandu", "--entrypoint", "ledgermq"),
    "ledgermq:latest",
)


def digest(seed: int, command: tuple[str, ...], **environment: str) -> str:
    done = subprocess.run(
        [*command, "sim", "--seed", str(seed), "--json"],
        cwd=ROOT, env={**os.environ, **environment}, check=False, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    row = json.loads(done.stdout)
    assert row["events"] > 1000, row
    return str(row["digest"])


def test_same_seed_gives_the_same_digest_in_a_container() -> None:
    here = [digest(seed, (sys.executable, "-m", "cli"), PYTHONHASHSEED="1") for seed in SEEDS]
    assert len(set(here)) == len(SEEDS), "a digest that never differs shows nothing"
    assert [digest(seed, CONTAINER) for seed in SEEDS] == here
