"""Gemini CLI, the Gemini API, Vertex and Antigravity: their sentences and quota names. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

FIVE_MINUTES = 300.0  # gemini-cli's own line between a burst and a spent quota

RULES: tuple[Rule, ...] = (
    # Limit 0: the model is not in the plan. It never clears, whatever delay is named beside it.
    rule(
        "google.limit-zero",
        "billing",
        r"quota exceeded for metric: \S{1,160}, limit: 0(?![\d.])",
        r"quota_?(?:limit_?)?value[\"'\s:]{1,10}(?:value[\"'\s:]{1,6})?0(?![\d.])",
        anywhere=True,
        stage=Stage.EXACT,
    ),
    # The same words for a burst and for a spent window: the wait tells.
    rule(
        "google.exhausted",
        "quota",
        r"<6>exhausted your (?:capacity|quota)",
        r"your quota will reset (?:after|in|at)",
        r"<14>\(reset after \d",
        short_wait=FIVE_MINUTES,
        reach="model",
    ),
    rule(
        "google.resource-exhausted",
        "rate",
        r"<3>resource (?:has been )?exhausted",
        r"<8>exceeded your current quota",
        r"<2>quota exceeded for",
        r"possible quota limitations in place",
        open_end=True,
        long_wait=FIVE_MINUTES,
    ),
)
