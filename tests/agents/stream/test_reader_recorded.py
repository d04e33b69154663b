"""What real agent CLIs printed when they met a limit (tests/agents/README.md), read as a stream: is that right?"""

from typing import Literal

import msgspec
from tests.detect.each_row import each_row
from tests.detect.sample_files import RECORDED

from paceline.detect import StreamReader

PROVIDERS = {
    "claude": "claude-code",
    "claude-newest": "claude-code",
    "codex": "codex",
    "gemini": "gemini-cli",
    "openclaw": "openclaw",
    "opencode": "opencode",
    "qwen": "qwen-code",
    "qwen-newest": "qwen-code",
}


class Sample(msgspec.Struct, frozen=True):
    """The meta file of a recorded run; `outcome` is what Paceline should conclude, None where it is not judged."""

    cli: str
    case: str
    exit_code: int
    recorded_at: float
    outcome: str | None

    def output(self, suffix: str) -> bytes:
        return (RECORDED / self.cli / f"{self.case}.{suffix}").read_bytes()


SAMPLES = [msgspec.json.decode(path.read_bytes(), type=Sample) for path in sorted(RECORDED.glob("*/*.meta.json"))]
JUDGED = [sample for sample in SAMPLES if sample.outcome is not None]


def name_of(sample: Sample) -> str:
    return f"{sample.cli}/{sample.case}"


def read(sample: Sample, chunk_bytes: int | None) -> StreamReader:
    """Feed the sample, whole or in chunks that take turns between the two channels, as a pipe would bring them."""
    reader = StreamReader(PROVIDERS[sample.cli], tz="UTC")
    outputs: dict[Literal["stdout", "stderr"], bytes] = {"stdout": sample.output("out"), "stderr": sample.output("err")}
    longest = max(1, *(len(output) for output in outputs.values()))
    size = chunk_bytes or longest
    for start in range(0, longest, size):
        for channel, output in outputs.items():
            reader.feed(output[start : start + size], channel=channel, seen_at=sample.recorded_at)
    reader.close(exit_code=sample.exit_code, seen_at=sample.recorded_at)
    return reader


@each_row("sample", JUDGED, ids=name_of)
def test_a_recorded_run_is_concluded_rightly_when_read_in_one_go(sample: Sample) -> None:
    assert read(sample, chunk_bytes=None).outcome == sample.outcome


@each_row("chunk_bytes", [7, 256])
@each_row("sample", JUDGED, ids=name_of)
def test_a_recorded_run_is_concluded_the_same_when_read_in_chunks(sample: Sample, chunk_bytes: int) -> None:
    assert read(sample, chunk_bytes=chunk_bytes).outcome == sample.outcome


@each_row("sample", SAMPLES, ids=name_of)
def test_where_a_recorded_run_is_cut_makes_no_difference(sample: Sample) -> None:
    whole, cut = read(sample, chunk_bytes=None), read(sample, chunk_bytes=11)
    assert (cut.outcome, cut.session_id, cut.tokens, cut.auth_mode) == (
        whole.outcome,
        whole.session_id,
        whole.tokens,
        whole.auth_mode,
    )


def test_every_agent_has_samples_of_success_and_of_a_limit() -> None:
    kinds = {sample.cli: {other.outcome for other in SAMPLES if other.cli == sample.cli} for sample in SAMPLES}
    assert {cli for cli, outcomes in kinds.items() if {"success", "rate_limit"} <= outcomes} == set(PROVIDERS)
