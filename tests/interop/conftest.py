"""One server of each kind for all tests of our client's suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.cluster import Cluster
from bench.java import settle
from tests.interop.servers import ALL, REAL_GROUP, Server, start

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", params=ALL)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run the servers one after the other; the tests of one share it."""
    kind = request.param
    with start(kind, tmp_path_factory.mktemp("server") / "home") as processes:
        if isinstance(processes, Cluster):
            processes.leader()
        elif kind == REAL_GROUP:
            settle(10)
        yield Server(kind, processes.namesrv_addr)
