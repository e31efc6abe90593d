"""What docs/client.md shows of polling, blocking and administration runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cluster import Cluster

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
