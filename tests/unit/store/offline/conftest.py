"""Recorded stores, unpacked once; tests that change one take a copy of what they change."""

import shutil
import tarfile

import pytest

from tests import fixtures


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Return a function: where the recorded store of a name lies; it must not be changed."""
    root = tmp_path_factory.mktemp("recorded")
    places = {}

    def find(name, folder):
        if name not in places:
            places[name] = root / name
            with tarfile.open(fixtures.store(name)) as archive:
                archive.extractall(root / name, filter="data")
        return places[name] / folder

    return find


@pytest.fixture
def killed(recorded, tmp_path):
    """A copy of the recorded store of a killed broker, without its large index."""
    root = tmp_path / "store"
    source = recorded("master-4.9.7-killed", "store")
    shutil.copytree(source, root, ignore=shutil.ignore_patterns("index"))
    return root
