"""OpenClaw: its caps on parallel children and groups."""

from paceline.detect.provider import AgentCli, Provider
from paceline.detect.providers.anthropic import ASSUMED_FORMAT
from paceline.detect.rules import Rule, Stage, rule

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
)

PROVIDER = Provider(name="openclaw", rules=RULES, clis=(AgentCli(name="openclaw", dialect=ASSUMED_FORMAT),))
