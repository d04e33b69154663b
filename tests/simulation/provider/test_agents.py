"""The unmodified agent CLIs against the fake provider, in a network of their own (tests/agents/README.md).

Runs on `make test-agents`: what they print must be concluded rightly, and a resumed conversation must arrive whole.
"""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from paceline.detect import StreamReader

ROOT = Path(__file__).resolve().parents[3]
RECORDER = ROOT / "scripts" / "record_agents.py"
PROVIDERS = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini-cli",
    "opencode": "opencode",
    "qwen": "qwen-code",
}
PATIENCE = "20"
"""A factor on the recorder's time limits. No case here waits for one, and a busy machine needs minutes for a run."""
LIMITS = (
    "claude/429_retry_after",
    "claude/429_unified.oauth",
    "claude/529",
    "codex/429_usage_limit",
    "codex/503",
    "gemini/429_retryinfo",
    "gemini/429_perday",
    "opencode/429_retry_after",
    "opencode/unreachable",
    "qwen/401",
)

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not (ROOT / ".agents" / ".installed").exists(), reason="no agent CLIs here: make agents"),
]


class Run(msgspec.Struct, frozen=True):
    """What the recorder kept of a run."""

    exit_code: int
    recorded_at: float
    outcome: str | None
    remembers: bool | None = None


def record(case: str, into: Path) -> tuple[Run, str]:
    """Run the CLI; its facts and its standard output."""
    command = [sys.executable, str(RECORDER), "--only", case, "--patience", PATIENCE, "--into", str(into)]
    subprocess.run(command, check=True, capture_output=True)
    return (
        msgspec.json.decode((into / f"{case}.meta.json").read_bytes(), type=Run),
        (into / f"{case}.out").read_text(),
    )


@pytest.mark.parametrize("case", LIMITS)
def test_a_limit_met_by_a_real_agent_is_concluded_rightly(case: str, tmp_path: Path) -> None:
    run, stdout = record(case, tmp_path)
    reader = StreamReader(PROVIDERS[case.partition("/")[0]], tz="UTC")
    reader.feed(stdout.encode(), channel="stdout", seen_at=run.recorded_at)
    reader.feed((tmp_path / f"{case}.err").read_bytes(), channel="stderr", seen_at=run.recorded_at)
    reader.close(exit_code=run.exit_code, seen_at=run.recorded_at)
    assert reader.outcome == run.outcome


@pytest.mark.parametrize("agent", PROVIDERS)
def test_a_resumed_conversation_reaches_the_provider_with_its_history(agent: str, tmp_path: Path) -> None:
    run, _ = record(f"{agent}/resume", tmp_path)
    assert (run.exit_code, run.remembers) == (0, True)
