"""Which processes of a run have a planted bug: brokers, or the workers that are their clients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import mutants.__main__ as command
from mutants.calibrate import shows_in_processes
from mutants.patches import ALL
from mutants.planting import Mutant, is_of_clients

OF_BROKERS, OF_LIBRARY, OF_CLIENTS = (
    "ack-before-quorum",  # changes dledger
    "chosen-queue-ignored",  # changes the library
    "client-sets-host-bits",  # changes what brokers have, too: its name says where it goes
)


@pytest.mark.parametrize(
    ("name", "broker", "worker"),
    [(OF_BROKERS, True, False), (OF_LIBRARY, False, True), (OF_CLIENTS, False, True)],
)
def test_bug_is_planted_in_the_processes_that_execute_it(name, broker, worker, monkeypatch, capsys):
    ran = []
    programs = SimpleNamespace(main=lambda *_: 0, run_worker=lambda _: ran.append("worker") or 0)
    monkeypatch.setattr(command.importlib, "import_module", lambda _: programs)
    planted = []
    monkeypatch.setattr(Mutant, "__call__", lambda self: planted.append(self.name))
    assert command.main([name, "--", "broker", "-c", "file"]) == 0
    assert bool(planted) is broker
    assert ("mutant planted" in capsys.readouterr().err) is broker
    planted.clear()
    assert command.main([name, "--", "chaos.workload.producer", "file"]) == 0
    assert bool(planted) is worker
    assert ran == ["worker"]


def test_bug_of_a_name_server_is_planted_there_and_nowhere_else(monkeypatch, capsys):
    programs = SimpleNamespace(main=lambda *_: 0, run_worker=lambda _: 0)
    monkeypatch.setattr(command.importlib, "import_module", lambda _: programs)
    planted = []
    monkeypatch.setattr(Mutant, "__call__", lambda self: planted.append(self.name))
    for name, wanted in (("group-goes-before-its-last", True), (OF_BROKERS, False)):
        assert command.main([name, "--", "namesrv", "-c", "file"]) == 0
        assert bool(planted) is wanted
        planted.clear()
    for program in ("broker", "chaos.workload.consumer"):
        assert command.main(["group-goes-before-its-last", "--", program, "x"]) == 0
    assert not planted
    assert "it is of name servers" in capsys.readouterr().err


def test_bugs_of_the_library_show_in_processes():
    assert is_of_clients(ALL[OF_LIBRARY])
    assert shows_in_processes(ALL[OF_LIBRARY])
    assert not shows_in_processes(ALL["controller-vote-not-kept"])
