"""docs/integrations.md is correct: its code blocks run, and its signature is the real one."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from paceline.integrations import httpx, httpx2

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}


@pytest.mark.parametrize("block", BLOCKS)
async def test_every_code_block_of_the_page_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    made: dict[str, Any] = {}

    exec(block, made)

    assert made["limiter"].status().active_runs == 0


def test_the_signature_is_the_one_on_the_page() -> None:
    for kind in (httpx.SlotTransport, httpx2.SlotTransport):
        parameters = list(inspect.signature(kind).parameters.values())
        shown = ", ".join(
            each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in parameters[2:]
        )
        assert f"`SlotTransport(limiter, account, *, {shown})`" in PAGE
