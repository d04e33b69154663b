"""The output of a plan's own command: setup, check or delivery."""

from paceline.executors.interface import Handle

TAIL_BYTES = 8_000
"""The end of the output that is kept and fed back: a failed test run names its failures there."""


def printed_tail(handle: Handle) -> str:
    """Return the end of what the command printed. It becomes a prompt, which cannot contain NUL."""
    tail = b""
    for channel in handle.channels:
        printed = b""
        while piece := handle.read_new(channel):
            printed = (printed + piece)[-TAIL_BYTES:]
        tail += printed
    return tail[-TAIL_BYTES:].replace(b"\0", b"").decode(errors="replace").strip()
