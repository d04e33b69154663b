"""A hint about something that would spoil the night."""

import msgspec


class Advice(msgspec.Struct, frozen=True):
    """Something that would spoil the night, and what to do about it."""

    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}"
