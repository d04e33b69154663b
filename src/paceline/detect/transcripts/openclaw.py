"""The format of OpenClaw: one answer at the end of a run."""

from collections.abc import Sequence

from paceline.detect.parsing.json_objects import Event, text_at
from paceline.detect.transcripts.entry import TranscriptEntry, said


def entries(event: Event) -> Sequence[TranscriptEntry]:
    """Read what the agent said last."""
    return said(text_at(event, "final") or "")
