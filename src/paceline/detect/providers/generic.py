"""What any provider may print about limits, in the words, headers and events that most of them share.

Here: the shared rules, standard headers, and CLIs of which nothing special is known. Never here: what belongs to one
provider. `<4>` in a core allows up to four more words of the same sentence before it (see `rules.py`).
"""

import re

from paceline.detect.grammar.statements import HOUR
from paceline.detect.notices import LastLine
from paceline.detect.provider import AgentCli, EventRules, HeaderRules, NoticeRules, Provider, ZoneRule
from paceline.detect.providers.anthropic import ASSUMED_FORMAT
from paceline.detect.providers.network import is_client_error
from paceline.detect.rules import Rule, Stage, rule

# GitHub and Docker limit their own clients, in their own words.
_ANOTHER_SERVICE = (
    r"pull rate limit|secondary rate limit|docs\.github\.com/rest"
    r"|rate limit exceeded for (?:user id|installation|\d{1,3}\.\d)"
)
# The words before a status code that make it one: `HTTP 429`, `API Error (529`, `last status: 429`.
_STATUS = r"(?:<3>error(?: code)?|http(?: error)?|<3>status(?:[ _]code)?|code|request rejected):? ?[(\[]?"

# Limits that the user has set: they clear when the user raises them.
OWN: tuple[Rule, ...] = (
    rule(
        "none.own-setting",
        "none",
        r"(?:token budget exhausted|goal budget reached|max session turns)",
        r"in (?:your |the )?(?:settings?|config)\.(?:json|toml|ya?ml)",
        anywhere=True,
    ),
)

# What the grammar cannot compose: a state that no word for a limit names.
SENTENCES: tuple[Rule, ...] = (
    rule(
        "billing.no-plan",
        "billing",
        r"<4>no active subscription",
        r"<4>(?:membership|subscription|trial|plan)(?: has| is)? (?:expired|inactive|cancell?ed|past due)",
        r"<8>(?:requires|without) (?:an active|a paid) (?:subscription|plan)",
        r"<3>account(?: \S{1,60}){0,3} is (?:suspended|deactivated|disabled|not active)",
        r"<6>billing (?:to be|must be|is not|isn't) (?:enabled|active)",
        r"<8>doesn't have a free (?:quota )?tier",
        r"<6>does not comply with the fair us(?:ag)?e policy",
        r"<12>can only afford",
        r"(?:\d{3} )?payment[ _]required",
    ),
    rule(
        "billing.suspended",
        "billing",
        r"(?:service|account|key|subscription|project) (?:(?:has been|is|was) )?(?:paused|suspended)",
        body_only=True,
    ),
    rule(
        "billing.status",
        "billing",
        r"402 (?:payment|insufficient|prompt|you|your|this|status code)\b",
        open_end=True,
    ),
    rule(
        "quota.wait-for-reset",
        "quota",
        r"(?:\d\. )?(?:<6>)wait for (?:your )?(?:usage )?(?:limits?|quota) to reset",
        r"access resets at",
        r"you will regain access on",
        r"please (?:return|come back|try again) (?:tomorrow|next (?:week|month))",
    ),
    rule("overloaded.down", "overloaded", r"<3>servers are down or overloaded", r"maximum pending requests"),
    rule("rate.retrying", "rate", r"retrying after rate limit"),
    rule(
        "rate.ask-for-more",
        "rate",
        r"<6>(?:request|submit) a (?:quota|rate limit) increase",
        open_end=True,
        stage=Stage.WEAK,
    ),
    rule(
        "billing.cap-of-a-key",
        "billing",
        r"key (?:credit |spend )?limit exceeded",
        r"request a limit increase from your \w+|increase your spend cap",
    ),
    rule(
        "rate.sent-too-fast",
        "rate",
        r"<4>requests? too (?:frequent(?:ly)?|fast|quickly)",
        r"<8>increased too quickly",
        r"<4>slow down|high frequency usage",
        cause="starts",
    ),
)

# Error codes and bare statuses come after all sentences: wrappers are wrong more often than the words inside.
CODES: tuple[Rule, ...] = (
    rule(
        "billing.code",
        "billing",
        r"workspace_\w{3,20}_(?:usage_limit_reached|credits_depleted)",
        r"billing_(?:hard_limit_reached|not_active|error)|budget_exceeded|exceeded_current_quota_error|arrearage",
        r"monthlylimiterror|creditserror|userlimiterror|accountoverdueerror",
    ),
    rule(
        "quota.per-day",
        "quota",
        r"quota exceeded[^\n]{0,200}(?:per day|perday)|\w{0,80}perday\w{0,60}",
        r"<4>free-models-per-day\S{0,30}|limit_rpd",
        r"<12>too many (?:tokens|requests) per day",
        open_end=True,
        window="daily",
    ),
    rule(
        "quota.code",
        "quota",
        r"\w{0,30}usage_?limit(?:_?(?:reached|exceeded|error))?",
        r"user_(?:weekly|monthly|daily|global)_rate_limited",
        r"quota_exhausted|quota_limit_reached|terminalquotaerror|weekly_limit_\w+",
        r"(?:organization|account|free)_quota_exceeded|plan_limit_reached",
    ),
    rule(
        "overloaded.code",
        "overloaded",
        r"\w{0,30}overloaded_error|server_?(?:is_)?overloaded|unavailable_error|slow_down|service_?unavailable\w{0,20}",
        r"<3>(?:exceeded retry limit, last status:|attempt \d{1,3} failed with status) 5\d\d",
        open_end=True,
        stage=Stage.CODE,
    ),
    rule(
        "rate.code",
        "rate",
        r"rate_?limit_?(?:error|exceeded|reached)\w*",
        r"[\"'=\[(]rate_limit(?:ed)?[\"'\])]",
        r"too_many_requests",
        r"\w{0,40}toomanyrequests\w{0,20}",
        r"throttl(?:ing|ed)(?:exception|error|\.\w{1,30})",
        r"resource_?exhausted",
        r"(?:[\w.]{0,80}\.)?\w{0,30}ratelimit(?:exceeded)?(?:error|exception)\w{0,20}",
        stage=Stage.CODE,
        unless=_ANOTHER_SERVICE,
        long_wait=HOUR,
    ),
    rule(
        "overloaded.status",
        "overloaded",
        rf"{_STATUS}(?:503|529)\b",
        r"(?:503|529) (?:service|server|overloaded|\{)|\[(?:503|529)\](?=:)",
        stage=Stage.WEAK,
    ),
    rule(
        "overloaded.unavailable",
        "overloaded",
        r"<4>(?:temporarily|service|currently) unavailable",
        r"status\W{1,4}unavailable",
        unless=r"resource temporarily unavailable",
        stage=Stage.WEAK,
    ),
    rule(
        "rate.status",
        "rate",
        rf"{_STATUS}429\b(?!\.\d)",
        r"429 (?:too many|status code|provider returned error|free|rate|you|resource|quota|\{|\"|$)",
        r":http_status/429",
        stage=Stage.WEAK,
        unless=r"rejected \(429\) [^\n]{0,4}retrying without",
        long_wait=HOUR,
    ),
    rule(
        "auth.refused",
        "auth",
        r"<10>(?:invalid|incorrect|missing|expired|revoked)(?: \w+)?"
        r" (?:x-)?(?:api[- ]key|token|credentials|authentication)(?: provided)?",
        r"<3>api key (?:is )?(?:not valid|invalid|expired|missing|required)",
        r"authentication_(?:error|failed)|unauthenticated",
        r"<4>401 unauthorized",
        r"(?:please |you (?:need|have) to )(?:log|sign) in(?: first| again)?",
        r"(?:log|sign) in (?:first|again|to (?:continue|use))",
        r"(?:you're |you are )?not logged in",
        r"oauth token (?:has )?(?:expired|been revoked)",
    ),
)

RULES: tuple[Rule, ...] = OWN + SENTENCES + CODES

CHINA_TIME = "Asia/Shanghai"
KANA = re.compile(r"[\u3040-\u30ff]")
"""Only in Japanese, which shares its other characters with Chinese."""

UNKNOWN_CLI = AgentCli(name="", dialect=ASSUMED_FORMAT, stderr=LastLine, is_unanswered=is_client_error)
"""An unknown command. Its stderr may quote any text, so only the last line of a failed run counts."""

PROVIDER = Provider(
    name="generic",
    rules=RULES,
    events=EventRules(errors=frozenset({"error"})),
    headers=HeaderRules(
        names=r"retry-after(?:-ms)?|x-retry-after|ratelimit(?:-policy|-limit|-remaining|-reset)?",
        words=frozenset({"ratelimit"}),
        # Whatever a provider puts before it: `acme-ratelimit-remaining-requests`.
        buckets=r"(?:[a-z]{1,20}-){0,2}ratelimit-(?P<what>remaining|reset|limit)(?:-(?P<bucket>[\w-]{1,40}))?",
    ),
    notices=NoticeRules(retry=r"[Rr]etrying (?:in|after|with)\b"),
    # Chinese services print China time and do not name the zone.
    zones=(ZoneRule(zone=CHINA_TIME, pattern=re.compile(r"[\u4e00-\u9fff]{3}"), unless=KANA),),
    clis=tuple(
        AgentCli(name=name, dialect=ASSUMED_FORMAT) for name in ("amp", "crush", "droid", "grok-cli", "kimi-cli")
    ),
    model_limit=(
        r"(?:this|selected|specific to this|that) model"
        r"|limit (?:reached )?for (?!your|the|organization|\d)[\w./`-]{3,60}"
        r"|rate limit reached for (?:model )?`?(?!organization|default|requests)\w"
    ),
)
