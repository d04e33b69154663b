"""Claude Code and the Anthropic API: their sentences, their window names.

Rules and names only; the events of the CLI are read in `events.py`, the headers in `http.py`.
"""

from paceline.detect.rules import Rule, Stage, rule

# Names of windows in `rateLimitType`, in unified headers and in status lines.
WINDOWS = {
    "five_hour": "5h",
    "5h": "5h",
    "seven_day": "weekly",
    "7d": "weekly",
    "one_day": "daily",
    "1d": "daily",
    "24h": "daily",
    "thirty_day": "monthly",
    "30d": "monthly",
    "monthly": "monthly",
}

RULES: tuple[Rule, ...] = (
    rule(
        "claude.out-of-extra-usage",
        "quota",
        r"(?:you're |you are )?out of (?:extra usage|usage credits)\s?·?\s?resets?",
        stage=Stage.EXACT,
    ),
    rule(
        "claude.limiting-requests",
        "rate",
        r"<4>(?:temporarily )?limiting requests",
        stage=Stage.EXACT,
        reach="provider",
    ),
    rule("claude.usage-credits-required", "billing", r"<2>(?:extra usage|usage credits) (?:is|are) required"),
    rule(
        "claude.org-spend-limit",
        "billing",
        r"you've hit your (?:org|organization|team|workspace)(?:'s)? (?:\w+ )?spend limit",
        stage=Stage.EXACT,
    ),
    rule(
        "claude.out-of-usage-credits",
        "billing",
        r"you(?:'re| are) out of (?:extra usage|usage credits)",
        unless=r"resets \d|resets [a-z]{3}",
    ),
    rule(
        "claude.pipe-epoch", "quota", r"<3>usage limit reached[^\n|]{0,40}\|\s?\d{10}", anywhere=True, stage=Stage.EXACT
    ),
    # The window is spent, but the work goes on, billed as overage: nothing to wait for.
    rule("claude.using-overage", "none", r"now using (?:extra usage|usage credits)", anywhere=True),
    rule("claude.ask-admin", "quota", r"<3>limit (?:reached|resets)[^\n]{1,40}contact an admin", anywhere=True),
    rule("claude.limit-menu", "quota", r"(?:\d\. )?stop and wait for limit to reset"),
    rule("claude.high-load", "overloaded", r"<2>is experiencing high load", reach="model"),
    rule("claude.api-error-rate-limit", "rate", r"api error: rate limit(?:ed| reached| exceeded)", anywhere=True),
    rule(
        "claude.retry-spinner",
        "rate",
        r"retrying in \d{1,4} ?s(?:econds)?\W{1,6}attempt #?\d{1,3}(?:/\d{1,3})?",
        stage=Stage.SIGN,
    ),
    rule(
        "claude.would-exceed",
        "rate",
        r"this request would exceed (?:your|the)(?: \S{1,40}){0,4} rate limit",
        anywhere=True,
    ),
)
