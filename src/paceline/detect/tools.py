"""OpenClaw, Copilot, opencode, Cursor, Kiro, Rovo Dev, Crush: the sentences that only they use. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

FIVE_MINUTES = 300.0

RULES: tuple[Rule, ...] = (
    rule(
        "openclaw.children",
        "platform",
        r"<6>max(?:imum)? (?:active )?(?:children|sub-?agents|child sessions)[^\n]{0,60}\(\d{1,4}/\d{1,4}[;)]",
        open_end=True,
        stage=Stage.EXACT,
        cause="concurrency",
    ),
    rule(
        "openclaw.group",
        "platform",
        r"<2>reached (?:\w+\.){1,4}max\w{3,40} \(\d{1,4}/\d{1,4}",
        open_end=True,
        stage=Stage.EXACT,
        cause="concurrency",
    ),
    rule(
        "openclaw.in-use",
        "platform",
        r"<12>limit (?:reached|exceeded):? \(?\d{1,4} ?/ ?\d{1,4}",
        stage=Stage.EXACT,
        cause="concurrency",
    ),
    rule(
        "copilot.restricted",
        "quota",
        r"rate limit that restricts the number of",
        anywhere=True,
        short_wait=FIVE_MINUTES,
    ),
    rule("copilot.rate-limited", "rate", r"(?:sorry, )?your request was rate-limited", stage=Stage.EXACT),
    rule("copilot.code", "quota", r"user_(?:weekly|monthly|global)_rate_limited", stage=Stage.EXACT),
    rule("copilot.token-usage", "quota", r"<4>exceeded your copilot (?:token usage|\w+ quota)"),
    rule("opencode.spending", "billing", r"monthlylimiterror|creditserror|userlimiterror"),
    rule("cursor.cycle", "quota", r"your usage limits? will reset when", anywhere=True),
    rule(
        "cursor.connect",
        "overloaded",
        r"connect ?error:? \[?(?:resource_exhausted|unavailable)|\[(?:resource_exhausted|unavailable)\] error",
    ),
    rule("kiro.tomorrow", "quota", r"please return tomorrow", anywhere=True, window="daily"),
    rule("kimi.retry", "rate", r"retrying after rate limit", stage=Stage.RATE),
)
