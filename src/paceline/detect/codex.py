"""Codex, in its terminal and its JSONL: their sentences. Rules only; `x-codex-*` headers are in `http.py`."""

from paceline.detect.rules import Rule, Stage, rule

RULES: tuple[Rule, ...] = (
    rule("codex.not-included", "none", r"to use codex with your chatgpt plan, upgrade|usage_not_included"),
    rule("codex.websocket-age", "none", r"websocket_connection_limit_reached|websocket connection limit reached"),
    rule("codex.safety", "none", r"temporarily limited for potentially", anywhere=True),
    rule("codex.wait-for-limits", "quota", r"wait for limits to reset", anywhere=True),
    rule("codex.workspace-credits", "billing", r"(?:your )?workspace is out of credits", stage=Stage.EXACT),
    rule(
        "codex.workspace-code",
        "billing",
        r"workspace_(?:owner|member)_(?:usage_limit_reached|credits_depleted)",
        anywhere=True,
        stage=Stage.EXACT,
    ),
    rule(
        "codex.retries-spent",
        "overloaded",
        r"<3>exceeded retry limit, last status: 5\d\d",
        open_end=True,
        stage=Stage.CODE,
    ),
)
