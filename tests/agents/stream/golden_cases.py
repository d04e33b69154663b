"""Whole outputs of real agent CLIs, each with the outcome to conclude."""

import json
from pathlib import Path

import msgspec
from tests.detect.sample_files import GOLDEN

from paceline.core.signals import Signal
from paceline.detect import StreamReader

SEEN_AT = 1794705600.0
PROVIDERS = {
    "claude": "claude-code",
    "codex": "codex",
    "copilot": "copilot-cli",
    "gemini": "gemini-cli",
    "opencode": "opencode",
    "qwen": "qwen-code",
}


class GoldenCase(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a real CLI: what it printed, how it exited, and what to conclude (None: not judged)."""

    name: str
    provider: str
    stdout: bytes
    stderr: bytes
    exit_code: int
    outcome: str | None


def golden_cases() -> list[GoldenCase]:
    """Return all golden runs."""
    return [_load(meta) for meta in sorted(GOLDEN.glob("*/*.meta.json"))]


def _load(meta_file: Path) -> GoldenCase:
    meta = json.loads(meta_file.read_text("utf-8"))
    stem = meta_file.name.removesuffix(".meta.json")
    return GoldenCase(
        name=f"{meta['cli']}/{stem}",
        provider=PROVIDERS[meta["cli"]],
        stdout=_bytes_of(meta_file.with_name(stem + ".out")),
        stderr=_bytes_of(meta_file.with_name(stem + ".err")),
        exit_code=meta["exit_code"],
        outcome=meta["outcome"],
    )


def _bytes_of(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


class Understood(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a reader reports about one run."""

    signals: list[Signal]
    session_id: str | None
    tokens: int | None
    auth_mode: str | None
    turns: int
    retries: int
    outcome: str | None


def read_run(
    provider: str, stdout: list[bytes], stderr: list[bytes], *, exit_code: int | None, stderr_first: bool = False
) -> Understood:
    """Feed a run to a new reader, one channel after the other."""
    reader = StreamReader(provider, tz="UTC")
    signals: list[Signal] = []
    if stderr_first:
        for chunk in stderr:
            signals += reader.feed(chunk, channel="stderr", seen_at=SEEN_AT)
    for chunk in stdout:
        signals += reader.feed(chunk, channel="stdout", seen_at=SEEN_AT)
    if not stderr_first:
        for chunk in stderr:
            signals += reader.feed(chunk, channel="stderr", seen_at=SEEN_AT)
    signals += reader.close(exit_code=exit_code, seen_at=SEEN_AT)
    return Understood(
        signals=signals,
        session_id=reader.session_id,
        tokens=reader.tokens,
        auth_mode=reader.auth_mode,
        turns=reader.turns,
        retries=reader.retries,
        outcome=reader.outcome,
    )


def cut(data: bytes, size: int) -> list[bytes]:
    """Return the bytes in chunks of this size."""
    return [data[start : start + size] for start in range(0, len(data), size)]
