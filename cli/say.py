"""How commands print: through here, so that no text from outside gives orders to a terminal."""

from __future__ import annotations

import typer

from ledgermq.runtime.printable import visible


def say(text: str, *, err: bool = False) -> None:
    """Print lines, on standard error if ``err``. Control characters are spelt."""
    typer.echo(visible(text), err=err)
