"""The scenarios that are shipped, by name, and those of files, by path."""

from pathlib import Path
from typing import Final

from chaos.scenarios.schema import WrongScenario

FOLDER: Final = Path(__file__).with_name("shipped")


def shipped() -> dict[str, Path]:
    """Return the files of the scenarios that are shipped, by name, in its order."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def find(name: str) -> Path:
    """Return the file that is meant: a path to one, or a name. Errors: WrongScenario."""
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        return path
    found = shipped().get(name)
    if found is None:
        todo = "ledgermq chaos list prints those that there are; a file ends with .yaml"
        raise WrongScenario(f"{name}: no scenario is called so; {todo}")
    return found
