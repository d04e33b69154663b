"""What one structured event of an agent CLI states about limits.

Here: whether an event is an error, prose or bookkeeping, by its type. Never here: the events of one CLI,
which its provider reads, and sentences, which the caller reads in the text that is found.
"""

import re

from paceline.detect.parsing.json_objects import Event
from paceline.detect.provider import EventReading, error_reading
from paceline.detect.provider_set import ProviderSet

# Types of events that hold words of the model, a tool or the user, or mere bookkeeping.
_PROSE_TYPES = re.compile(
    r"assistant|user|message|text|reasoning|thinking|tool\w*|item\.\w+|stream_event|content\w*|function\w*|response_item"
    r"|(?:assistant|user|tool|session|turn|thread|model|step|system|hook|agent|permission)[._/][\w.]*|step\w*|turn|init|system|summary|delta|file|patch",
    re.I,
)
# Types that say of themselves that a call of the model failed, in any CLI. A failed tool does not count.
_FAILED_TYPES = re.compile(
    r"(?:turn|session|response|run|request|api|llm|model|agent|chat|completion|stream)[._/-]?(?:error|failed|failure)",
    re.I,
)
_PROSE_HEAD = re.compile(
    r'\s{0,40}\{\s{0,8}"type"\s?:\s?"(?P<type>[\w.\-]{1,40})"|\s{0,40}"(?P<key>new_string|old_string|content|text|result|command|aggregated_output|stdout|input|description|thinking)"\s?:'
)


def is_cut_prose(text: str, providers: ProviderSet) -> bool:
    """Return whether a piece of an event, too broken to be parsed, begins as words of the model, a tool or the user."""
    head = _PROSE_HEAD.match(text[:400])
    if head is None:
        return False
    if head["key"]:
        return True
    return not _is_error(head["type"], providers) and bool(_PROSE_TYPES.fullmatch(head["type"]))


def is_event(document: Event, providers: ProviderSet) -> bool:
    """Return whether a JSON object is an event of an agent CLI, rather than the body of an answer."""
    kind = document.get("type")
    if not isinstance(kind, str):
        return False
    return providers.has_reader(kind) or _is_error(kind, providers) or bool(_PROSE_TYPES.fullmatch(kind))


def read_error_event(event: Event, providers: ProviderSet) -> EventReading | None:
    """Return what an event states about capacity; None for everything that is not the CLI's own error."""
    kind = event.get("type")
    if not isinstance(kind, str):
        return error_reading(event) if "error" in event else None
    if providers.has_reader(kind):
        return providers.read_event(kind, event)
    if _is_error(kind, providers):
        return error_reading(event)
    if _PROSE_TYPES.fullmatch(kind):
        return None
    return error_reading(event) if event.get("error") else None


def _is_error(kind: str, providers: ProviderSet) -> bool:
    return kind in providers.error_events or bool(_FAILED_TYPES.fullmatch(kind))
