"""The wheel, built and installed as a user has it: nothing of the checkout, no extras, any folder.

The environment holds what the wheel requires and no more: links to the packages that set-up has
installed, so that no network is needed. LEDGERMQ_PYTHONS names further interpreters ("python3.12
python3.13"); for these pip installs what the wheel requires, from wherever set-up gets it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.backends.ports import take_ports
from chaos.needs import EXTRAS
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD_S, INSTALL_S, COMMAND_S, START_S = 300, 600, 120, 60
# The first test of an interpreter waits for its environment, the first of all for the wheel.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_S + 2 * INSTALL_S + 5 * COMMAND_S)]
THEIRS = (
    "bench", "broker", "chaos", "cli", "client", "dledger", "mutants", "namesrv", "remoting",
    "runtime", "sim", "spark", "store",
)  # fmt: skip
APPLICATION = """\
import asyncio

from ledgermq import ClientConfig, Message, Producer, SendResult, __version__


async def main(address: str) -> SendResult:
    config = ClientConfig(namesrv_addrs=(address,), group="application")
    assert __version__
    async with Producer(config) as producer:
        return await producer.send(Message("orders", b"hello"))


print(asyncio.run(main("127.0.0.1:PORT")).msg_id)
"""


def call(*words: object, cwd: Path, seconds: float = COMMAND_S, code: int = 0) -> str:
    """Run a command as a user would; return what it printed. Fails unless it ends with ``code``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=env, timeout=seconds, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == code, (words, done.returncode, done.stdout[-3000:])
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, from a copy of what is committed or about to be."""
    source = tmp_path_factory.mktemp("source")
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    for name in call(*listed, cwd=ROOT).splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    out = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, source)
    call(sys.executable, "-m", "pip", *build, cwd=out, seconds=BUILD_S)
    (built,) = out.glob("ledgermq-*.whl")
    return built


def required() -> list[importlib.metadata.Distribution]:
    """Return what the wheel requires without extras, and what that requires, as installed here."""
    from packaging.requirements import Requirement

    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = list(PROJECT["dependencies"])
    while wanted:
        need = Requirement(wanted.pop())
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        if need.name.lower() not in found:
            found[need.name.lower()] = importlib.metadata.distribution(need.name)
            wanted += found[need.name.lower()].requires or ()
    return list(found.values())


def link_packages(python: Path) -> None:
    """Let a new environment have the installed packages that the wheel requires, and no others."""
    place = call(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))", cwd=ROOT)
    for distribution in required():
        for file in distribution.files or ():
            top = file.parts[0]
            target = Path(place.strip()) / top
            if top not in {"..", "__pycache__"} and not os.path.lexists(target):
                target.symlink_to(Path(str(distribution.locate_file(top))))


def interpreters() -> list[str]:
    """Return the interpreters to try: this one, and those that the environment names."""
    return [sys.executable, *os.environ.get("LEDGERMQ_PYTHONS", "").split()]


def runs(interpreter: str) -> bool:
    """Return whether an interpreter can make environments; a name on the path may be a shim."""
    words = [interpreter, "-c", "import venv, ensurepip"]
    found = shutil.which(interpreter)
    limits = {"capture_output": True, "timeout": COMMAND_S}
    return found is not None and not subprocess.run(words, check=False, **limits).returncode


class User:
    """Somebody with the wheel in an environment, in a folder full of files named as ours."""

    def __init__(self, home: Path, interpreter: str, wheel: Path) -> None:
        self.folder = home / "project"
        self.folder.mkdir()
        self.bin = home / "env" / "bin"
        here = interpreter == sys.executable
        extra = ["--without-pip"] if here else []
        call(interpreter, "-m", "venv", *extra, home / "env", cwd=home, seconds=INSTALL_S)
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "-q"]
        if here:
            link_packages(self.bin / "python")
            pip += ["--no-deps", "--no-index"]
        call(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=home, seconds=INSTALL_S)
        for name in THEIRS:
            (self.folder / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the user')\n")

    def ledgermq(self, *words: object, code: int = 0) -> str:
        """Run the command in the folder; return what it said."""
        return call(self.bin / "ledgermq", *words, cwd=self.folder, code=code)

    @contextlib.contextmanager
    def server(self, *words: object) -> Iterator[None]:
        """A server of the command while the block runs."""
        log = self.folder / f"{words[0]}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [self.bin / "ledgermq", *map(str, words)],
                cwd=self.folder, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            finally:
                process.kill()
        assert process.returncode == 0, log.read_text()


@pytest.fixture(scope="module", params=interpreters(), ids=lambda name: Path(name).name)
def user(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, wheel: Path
) -> User:
    if not runs(request.param):
        pytest.skip(f"{request.param} does not run here")
    return User(tmp_path_factory.mktemp("user"), request.param, wheel)


def test_the_command_says_its_version(user: User) -> None:
    said = user.ledgermq("version")
    assert said.startswith(f"ledgermq {PROJECT['version']} ")
    assert user.ledgermq("--version") == said


def test_what_is_imported_is_typed(user: User) -> None:
    check = ("--strict", "--no-incremental", "--python-executable", user.bin / "python")
    # Beside files that are named as ours mypy would check those: the application lies apart.
    apart = user.folder / "apart"
    apart.mkdir()
    (apart / "typed.py").write_text(APPLICATION)
    assert "Success" in call(sys.executable, "-m", "mypy", *check, "typed.py", cwd=apart)
    (apart / "typed.py").write_text(APPLICATION.replace('b"hello"', '"hello"'))
    said = call(sys.executable, "-m", "mypy", *check, "typed.py", cwd=apart, code=1)
    assert 'expected "bytes' in said


def test_a_broker_takes_and_gives_a_message(user: User) -> None:
    namesrv, port = take_ports(2)
    address = f"127.0.0.1:{namesrv}"
    settings = {
        "brokerName": "alone", "namesrvAddr": address, "brokerIP1": "127.0.0.1",
        "listenPort": port, "storePathRootDir": user.folder / "data", "bindAddress": "127.0.0.1",
        "mappedFileSizeCommitLog": 1 << 20,
    }  # fmt: skip
    conf = user.folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    application = user.folder / "application.py"
    application.write_text(APPLICATION.replace("PORT", str(namesrv)))
    with user.server("namesrv", "-p", namesrv), user.server("broker", "-c", conf):
        deadline = time.monotonic() + START_S
        produce = [user.bin / "ledgermq", "produce", "-n", address, "-t", "orders", "first"]
        limits = {"cwd": user.folder, "capture_output": True, "timeout": COMMAND_S}
        while subprocess.run(produce, check=False, **limits).returncode:
            assert time.monotonic() < deadline, (user.folder / "broker.log").read_text()
        message_id = call(user.bin / "python", "-P", application, cwd=user.folder).strip()
        assert len(message_id) == 32
        words = ("-n", address, "-t", "orders", "--count", 2, "--seconds", 30)
        said = user.ledgermq("consume", *words)
        assert sorted(line.split()[-1] for line in said.splitlines()) == ["first", "hello"]


def lacking(user: User) -> None:
    bring = ["import", ".", "--from", "csv", "--mapping", "m.toml", "--out", "run"]
    for words in (["demo"], ["check", "."], ["fuzz"], ["chaos", "run", "baseline"], bring):
        code = 1 if words == bring else 255
        said = user.ledgermq(*words, code=code)
        assert said.count("\n") == 1, said
        assert "run: pip install 'ledgermq[" in said


def test_a_missing_extra_is_one_line(user: User) -> None:
    lacking(user)
    said = user.ledgermq("doctor", code=2)
    assert "Traceback" not in said
    assert "pip install" in said


def test_the_extras_of_the_metadata_bring_what_is_looked_for() -> None:
    """On every Python that the wheel may be installed on, distutils among them."""
    from packaging.requirements import Requirement

    brings = {"setuptools": "distutils", "matplotlib": "numpy"}
    for extra, modules in EXTRAS.items():
        for python in ("3.12", "3.13"):
            given = {"python_version": python}
            needs = map(Requirement, PROJECT["optional-dependencies"][extra])
            names = {n.name for n in needs if n.marker is None or n.marker.evaluate(given)}
            names |= {brings[name] for name in names if name in brings}
            assert set(modules) <= names, (extra, python)


def test_a_wheel_that_takes_modules_of_the_user_is_noticed() -> None:
    """What `User` leans on: processes of the harness are started with a safe path."""
    from chaos.backends import process

    assert "-P" in process.python("-m", "broker")
    with planted(HARNESS_BUGS["modules-of-the-user"]):
        assert "-P" not in process.python("-m", "broker")
