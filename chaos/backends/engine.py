"""Commands of the container engine and of compose, run as child processes with a time limit.

Knows no cluster. Source: docker(1), compose files of the folder docker/.
"""

import asyncio
import contextlib
import functools
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Final

from chaos.backends.base import ClusterFailed
from ledgermq.runtime.cancel import timeout

COMMAND_TIMEOUT_S: Final = 60.0
STATE_TIMEOUT_S: Final = 10.0
_STATES: Final = {"running": "running", "paused": "stopped"}


@functools.cache
def compose_command() -> tuple[str, ...]:
    """Return the command of compose that is there: the plugin or the program of its own."""
    docker = shutil.which("docker")
    if docker is None:
        raise ClusterFailed("docker was not found; try: ledgermq doctor")
    probe = [docker, "compose", "version"]
    plugin = subprocess.run(probe, capture_output=True, check=False)  # noqa: S603  # fixed command
    if plugin.returncode == 0:
        return (docker, "compose")
    program = shutil.which("docker-compose")
    if program is None:
        raise ClusterFailed("neither docker compose nor docker-compose was found")
    return (program,)


async def call(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> str:
    """Run a command and return what it printed.

    Errors: `ClusterFailed` with the end of its error output, or when it takes too long.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=None if environment is None else dict(environment),
    )
    shown = " ".join(command[:6])
    try:
        async with timeout(timeout_s):
            out, err = await process.communicate(None if stdin is None else stdin.encode())
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise ClusterFailed(f"{shown} ... took longer than {timeout_s:.0f} s") from error
    if process.returncode != 0:
        lines = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
        said = " | ".join(lines[-3:]) or "nothing"
        raise ClusterFailed(f"{shown} ... exit={process.returncode} said: {said}")
    return out.decode(errors="replace")


def copy_logs(container: str, out: IO[bytes]) -> None:
    """Write what a container has printed to a file; blocks. Errors: `ClusterFailed`."""
    command = ["docker", "logs", container]
    with _in_time(command):
        subprocess.run(  # noqa: S603  # fixed command, a container's id
            command, stdout=out, stderr=subprocess.STDOUT, check=False, timeout=COMMAND_TIMEOUT_S
        )


def container_state(container: str) -> str:
    """Return ``running``, ``stopped`` (frozen) or ``gone``; blocks for some 30 ms.

    Errors: `ClusterFailed` where the engine does not answer.
    """
    status = inspect(container, "{{.State.Status}}")
    return _STATES.get(status, "gone")


def inspect(container: str, template: str) -> str:
    """Return a field of a container, empty if there is no such container; blocks.

    Errors: `ClusterFailed` where the engine does not answer.
    """
    command = ["docker", "inspect", "--type", "container", "-f", template, container]
    with _in_time(command):
        done = subprocess.run(  # noqa: S603  # fixed command, a container's id
            command, capture_output=True, check=False, text=True, timeout=STATE_TIMEOUT_S
        )
    return done.stdout.strip() if done.returncode == 0 else ""


@contextlib.contextmanager
def _in_time(command: Sequence[str]) -> Iterator[None]:
    """Have the end of the time for a command told as every failure of the engine is."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        late = f"{' '.join(command[:2])} ... took longer than {error.timeout:.0f} s"
        raise ClusterFailed(late) from error
