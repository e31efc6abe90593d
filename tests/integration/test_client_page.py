"""What docs/client.md shows of the first minutes, polling, blocking and administration is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cluster import Cluster
from chaos.backends.ports import take_ports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BEFORE = """\
import ast, asyncio, sys, types

async def handle(body):
    print("handled", body)

source = sys.argv[1]
code = compile(source, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
made = eval(code, globals())
if made is not None:
    asyncio.run(made)
"""


def blocks(heading: str) -> list[str]:
    section = (ROOT / "docs/client.md").read_text().split(f"\n## {heading}\n")[1]
    return re.findall(r"^```python\n(.*?)^```", section.split("\n## ")[0], re.M | re.S)


def execute(cluster: Cluster, source: str) -> str:
    source = source.replace("127.0.0.1:9876", cluster.namesrv_addr)
    done = subprocess.run(
        [sys.executable, "-c", BEFORE, source],
        cwd=ROOT, input="\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (source, done.stderr)
    return done.stdout


def test_the_page_is_true(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=1, sync_flush=False) as cluster:
        (blocking,) = blocks("Without asyncio")
        assert len(execute(cluster, blocking).split()) >= 1
        (polling,) = blocks("Polling as a group")
        execute(cluster, polling)
        (looking,) = blocks("Looking after a cluster")
        assert execute(cluster, looking).count("MessageQueue(topic='orders'") in {4, 8}


def test_the_first_ten_minutes_go_as_the_page_says(tmp_path: Path) -> None:
    section = (ROOT / "docs/client.md").read_text().split("\n## In ten minutes\n")[1]
    (script,) = re.findall(r"^```\n(.*?)^```", section.split("\n## ")[0], re.M | re.S)
    setup, script = script.split("\n", 1)
    assert setup == "make setup && source .venv/bin/activate"
    namesrv, broker = take_ports(2)
    ready = f"until ledgermq produce -t ready -n 127.0.0.1:{namesrv} yes; do sleep 1; done"
    for old, new in (
        ("9876", str(namesrv)), ("10911", str(broker)), ("sleep 3", ready),
        ("examples/", f"{ROOT}/examples/"),
    ):  # fmt: skip
        script = script.replace(old, new)
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-mc", f"trap 'kill $(jobs -p)' EXIT\n{script}"],
        env={**os.environ, "PATH": paths},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after 1 attempt") == 10
    assert "10 messages\n" in done.stdout
    assert (done.stdout.count(": COMMIT "), done.stdout.count(": ROLLBACK ")) == (4, 1)
