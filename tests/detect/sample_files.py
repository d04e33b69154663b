"""Where the sample files of the detection tests are. `samples/README.md` describes each of them."""

from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"
GOLDEN = SAMPLES / "golden"
RECORDED = SAMPLES / "recorded"
MESSAGES = SAMPLES / "messages.jsonl"
MORE_MESSAGES = SAMPLES / "more_messages.jsonl"
WORDINGS = SAMPLES / "wordings.jsonl"
UNSEEN = SAMPLES / "unseen.jsonl"
EVERYDAY = SAMPLES / "everyday.jsonl"
FILE_WINDOWS = SAMPLES / "file_windows.jsonl"


def rows_of(file: Path) -> list[str]:
    """Return the non-empty lines of a JSON Lines file."""
    return [line for line in file.read_text("utf-8").splitlines() if line.strip()]
