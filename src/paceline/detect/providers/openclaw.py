"""OpenClaw: its caps on parallel children and groups."""

from paceline.detect.provider import AgentCli, Provider
from paceline.detect.providers.anthropic import ASSUMED_FORMAT
from paceline.detect.rules import Rule, Stage, rule

# Words that make a count one of everything that ever ran: `maxTotalPerGroup`, `max_spawns_ever`, `lifetime limit`.
_EVER = r"(?:total|life-?time|all[-_ ]?time|cumulative|(?-i:(?:(?<![a-zA-Z])ever|Ever)(?![a-z])))"
# A total of what runs at the same time is a cap as any other, and one of a period becomes free with time.
_FREED = (
    r"(?:active|concurren|parallel|simultaneous|running|in[-_ ]?flight|at once|at a time|at the same time|hourly|daily"
    r"|weekly|monthly|today|per[-_ ]?(?:sec|min|hour|day|week|month))"
)
_LIMIT = r"(?:max\w{0,40}|limit|cap|reached|exceeded|hit|used)"
_COUNT = r"[^\n(;.]{0,60}\(\d{1,9} ?/ ?\d{1,9}"

RULES: tuple[Rule, ...] = (
    # `tools.swarm.maxTotalPerGroup (200/200)`: waiting never frees a place of it
    rule(
        "openclaw.used-up",
        "billing",
        rf"<12>(?:\b\w{{1,20}}\.){{0,4}}\b(?!\w{{0,60}}{_FREED})(?:max|\w{{0,30}}_max)\w{{0,40}}?{_EVER}\w{{0,40}}{_COUNT}",
        rf"<12>(?:\b\w{{1,20}}\.){{0,4}}\b(?!\w{{0,60}}{_FREED})\w{{0,30}}?{_EVER}\w{{0,30}}?(?:max|limit|cap)\w{{0,20}}{_COUNT}",
        rf"<12>\b{_LIMIT}\b(?![^\n(]{{0,90}}{_FREED})[^\n(;.]{{0,60}} {_EVER}\b{_COUNT}",
        rf"<12>\b{_EVER}\b(?![^\n(]{{0,90}}{_FREED})[^\n(;.]{{0,60}} {_LIMIT}\b{_COUNT}",
        open_end=True,
        stage=Stage.EXACT,
        advice="waiting does not free it; raise that total or begin a new session or group, then lift the hold",
    ),
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
