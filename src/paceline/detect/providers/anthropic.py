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

_EXTRA = r"(?:extra usage|usage credits)"

RULES: tuple[Rule, ...] = (
    # With a reset it is a window like any other; without one somebody has to pay.
    rule("claude.out-of-extra-usage", "billing", rf"you(?:'re| are) out of {_EXTRA}", unless=r"resets?\b"),
    rule("claude.extra-usage-required", "billing", rf"<2>{_EXTRA} (?:is|are) required"),
    # The window is spent, but the work goes on, billed as overage: nothing to wait for.
    rule("claude.using-overage", "none", rf"now using {_EXTRA}", anywhere=True),
    rule(
        "claude.retry-spinner",
        "rate",
        r"retrying in \d{1,4} ?s(?:econds)?\W{1,6}attempt #?\d{1,3}(?:/\d{1,3})?",
        stage=Stage.SIGN,
    ),
)
