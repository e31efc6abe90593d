"""What a process tells of its settings, and why none of them changes while it runs.

Settings are read at the start and hold until the end: a change is a line in the file and a start.
Keys and certificates are not shown to whoever asks.
Source: RocketMQ's requests 25, 26 (broker), 318, 319 (name server), whose bodies are properties.
"""

from collections.abc import Mapping
from typing import Final

from ledgermq.runtime.config import parse_properties_text, properties_of
from ledgermq.runtime.config_keys import ROCKETMQ_KEYS

_SECRETS: Final = ("peerSharedKey", "peerTls")
_NAMES_SHOWN_MAX: Final = 10
_NAME_LENGTH_SHOWN_MAX: Final = 64


def shown_settings(config: object, more: Mapping[str, str] | None = None) -> bytes:
    """Return lines ``key=value`` of a configuration, and of ``more``; no secrets."""
    settings = {**properties_of(config), **(more or {})}
    lines = [f"{key}={value}\n" for key, value in settings.items() if not key.startswith(_SECRETS)]
    return "".join(lines).encode("utf-8", "surrogateescape")


def refused_change(config: object, body: bytes) -> tuple[bool, str]:
    """Return whether all that ``body`` would set is a setting, and what to answer.

    ``body`` is a properties text of bounded size, from anybody.
    """
    names = list(parse_properties_text(body.decode("utf-8", "replace")))
    known = {*properties_of(config), *ROCKETMQ_KEYS}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        return False, f"no such setting: {_listed(unknown)}"
    return True, (
        f"{_listed(names)}: no setting changes while this process runs; "
        "change its configuration file and start it again"
    )


def _listed(names: list[str]) -> str:
    """Return the first names; a header can carry them though an escape is half a character."""
    shown = (
        name if len(name) <= _NAME_LENGTH_SHOWN_MAX else f"{name[:_NAME_LENGTH_SHOWN_MAX]}..."
        for name in names[:_NAMES_SHOWN_MAX]
    )  # fmt: skip
    return ", ".join(shown).encode("utf-8", "replace").decode()
