"""Gemini CLI, the Gemini API, Vertex and Antigravity: their sentences and quota names. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

FIVE_MINUTES = 300.0  # gemini-cli's own line between a burst and a spent quota

RULES: tuple[Rule, ...] = (
    # Limit 0: the model is not in the plan. It never clears, whatever delay is named beside it.
    rule(
        "google.limit-zero",
        "billing",
        r"quota exceeded for metric: \S{1,160}, limit: 0(?![\d.])",
        anywhere=True,
        stage=Stage.EXACT,
    ),
    rule(
        "google.limit-value-zero",
        "billing",
        r"quota_?(?:limit_?)?value[\"'\s:]{1,10}(?:value[\"'\s:]{1,6})?0(?![\d.])",
        anywhere=True,
        stage=Stage.EXACT,
    ),
    rule("google.no-credits", "billing", r"insufficient_g1_credits_balance", anywhere=True, stage=Stage.EXACT),
    rule("google.no-free-tier", "billing", r"<8>doesn't have a free (?:quota )?tier", stage=Stage.EXACT),
    rule(
        "google.capacity-exhausted",
        "quota",
        r"<6>exhausted your (?:capacity|quota)",
        short_wait=FIVE_MINUTES,
        reach="model",
    ),
    rule(
        "google.quota-will-reset",
        "quota",
        r"your quota will reset (?:after|in|at)",
        short_wait=FIVE_MINUTES,
        reach="model",
    ),
    rule("google.reset-after", "quota", r"<14>\(reset after \d", short_wait=FIVE_MINUTES),
    rule(
        "google.per-day",
        "quota",
        r"quota exceeded[^\n]{0,200}(?:per day|perday)|\w{0,80}perday\w{0,60}",
        anywhere=True,
        window="daily",
    ),
    rule("google.daily-quota", "quota", r"<6>daily (?:\S{1,40} )?quota(?: limit)?", window="daily", reach="model"),
    rule("google.resets-at", "quota", r"access resets at"),
    rule("google.slow-or-quota", "rate", r"possible quota limitations in place", stage=Stage.WEAK),
    rule("google.attempt-5xx", "overloaded", r"attempt \d{1,3} failed with status 5\d\d\. retrying", stage=Stage.WEAK),
    rule("google.key-refused", "auth", r"api key not valid|api_key_invalid|api key expired", anywhere=True),
    rule("google.suspicious", "none", r"validation_required|validation required to continue"),
)
