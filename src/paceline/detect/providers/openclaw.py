"""OpenClaw, Copilot, Cursor: the sentences that only they use. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

FIVE_MINUTES = 300.0

RULES: tuple[Rule, ...] = (
    # `max active children for this session (5/5)`, `maxChildrenPerGroup (3/3)`, `limit reached (20/20)`
    rule(
        "openclaw.in-use",
        "platform",
        r"<12>(?:(?:\b\w{1,20}\.){0,4}\bmax\w{0,40}|limit|cap)\b[^\n(;.]{0,60}\(\d{1,4} ?/ ?\d{1,4}",
        open_end=True,
        stage=Stage.EXACT,
        cause="concurrency",
        unless=r"actual/limit|used\)",
    ),
    rule(
        "copilot.restricted",
        "quota",
        r"rate limit that restricts the number of",
        anywhere=True,
        short_wait=FIVE_MINUTES,
    ),
    rule("cursor.slow-pool", "rate", r"using the slow pool", anywhere=True),
    rule(
        "cursor.connect",
        "overloaded",
        r"connect ?error:? \[?(?:resource_exhausted|unavailable)|\[(?:resource_exhausted|unavailable)\] error",
    ),
)
