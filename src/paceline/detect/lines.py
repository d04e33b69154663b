"""What one event or one line of an agent CLI's own output means, for readers of a stream.

Here: the two entry points that a stream reader calls for each complete piece. Never here: cutting
bytes into lines, or deciding whose words a line is; the caller passes only what the CLI itself said.
"""

import re

from paceline.core.signals import Signal
from paceline.detect.observation import Observation
from paceline.detect.observation_reader import Scene, explain, hints, read_event_in

# Words may be hidden by escapes, colours, line breaks and odd letters: only plain text can be passed over unread.
_HIDDEN = re.compile(r"[^\x20-\x5b\x5d-\x7e]")


def read_event(provider: str, event: dict[str, object], *, seen_at: float, tz: str) -> list[Signal]:
    """The signals in one structured event of an agent CLI. Prose and tool results inside it are silent."""
    try:
        return read_event_in(Scene(provider=provider, seen_at=seen_at, tz=tz), event).signals
    except Exception:  # noqa: BLE001 - an event may be anything; silence is the safe answer
        return []


def read_line(provider: str, line: str, *, channel: str, seen_at: float, tz: str) -> list[Signal]:
    """The signals in one line of the CLI's own text (stderr, plain stdout, screen)."""
    if not hints(line) and not _HIDDEN.search(line):
        return []
    return explain(Observation(provider=provider, channel=channel, text=line, seen_at=seen_at, tz=tz)).signals
