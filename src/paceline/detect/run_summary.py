"""What a reader knows of a run, as one value: it can be sent to another machine."""

import msgspec

from paceline.detect.run_facts import AuthMode
from paceline.detect.run_outcome import Outcome
from paceline.detect.run_usage import Requests, RunUsage
from paceline.detect.stream import StreamReader


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of `StreamReader`, under the same names."""

    outcome: Outcome | None = None
    session_id: str | None = None
    tokens: int | None = None
    usage: RunUsage | None = None
    requests: Requests | None = None
    model: str | None = None
    model_turns: int | None = None
    answer: str | None = None
    auth_mode: AuthMode | None = None
    has_answered: bool = False
    turns: int = 0
    turn_ends: int = 0
    retries: int = 0
    denials: int = 0
    denial_reason: str | None = None
    failure_text: str | None = None


def summary_of(reader: StreamReader) -> RunSummary:
    """Return what the reader knows by now."""
    return RunSummary(**{name: getattr(reader, name) for name in RunSummary.__struct_fields__})
