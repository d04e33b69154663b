"""Codex, in its terminal and its JSONL: what only it says. Rules only; `x-codex-*` headers are in `http.py`."""

from paceline.detect.rules import Rule, rule

RULES: tuple[Rule, ...] = (
    rule("codex.not-included", "none", r"to use codex with your chatgpt plan, upgrade|usage_not_included"),
)
