"""A span of time in the words of a reason: seconds, or minutes where those say enough."""


def rough_span(seconds: float) -> str:
    """Return the span as people read it: `90 s`, `11 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
