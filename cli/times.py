"""Times as a person types them: one rule for all commands. Knows no command."""

from datetime import UTC, datetime
from typing import Final

TIME_FORMS: Final = "in ms, or as 2025-01-31T12:00, which is UTC unless it names a zone: ...+02:00"
"""The rule, for the help of an option."""


def moment_ms(text: str) -> int | None:
    """Return a time as milliseconds since 1970, None if the text is none.

    Without a zone it is UTC, as stores and logs have it, whatever the zone of this machine.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
