"""Services with an API and no CLI of their own: OpenAI and those that answer in its shape, and Z.ai.

Here: OpenAI's sentences, its `x-ratelimit-*` headers and the errors of its event stream; the error codes of Z.ai.
Never here: Codex, which has a folder of its own, and the sentences of Chinese services (`shared_rules.py`).
"""

import re

from paceline.detect.provider import EventRules, HeaderRules, Provider, ZoneRule
from paceline.detect.rules import Rule, Stage, rule
from paceline.detect.shared_rules import CHINA_TIME, KANA

HOUR = 3600.0
"""A shorter wait for a daily bucket means that it refills soon: a rate, not a spent window."""
_GOOGLE_OR_ALIYUN = r"ai\.google|generativelanguage|googleapis|aliyun|dashscope|token-limit|resource_exhausted"
# At these providers an insufficient quota is a rate limit or a window.
_NOT_MONEY = frozenset({"gemini-cli", "gemini-api", "vertex", "antigravity-api", "antigravity-cli", "qwen-code"})

OPENAI_RULES: tuple[Rule, ...] = (
    rule(
        "openai.request-too-large", "none", r"request too large for (?:model )?\S{1,60} in organization", anywhere=True
    ),
    # Daily buckets refill all the time: "per day" with a wait of minutes is a rate.
    rule(
        "openai.daily-bucket",
        "quota",
        r"rate limit reached for [^\n]{1,200}? on (?:input |output )?(?:requests|tokens|images) per (?:day|hour|week)",
        anywhere=True,
        stage=Stage.EXACT,
        short_wait=HOUR,
    ),
    rule(
        "openai.quota-is-money",
        "billing",
        r"insufficient_quota",
        r"<8>(?:exceeded your current quota|quota exceeded)[,.]? (?:please )?check your plan",
        unless=_GOOGLE_OR_ALIYUN,
        not_for=_NOT_MONEY,
    ),
)

OPENAI = Provider(
    name="openai",
    rules=OPENAI_RULES,
    events=EventRules(errors=frozenset({"response.failed", "response.incomplete"})),
    headers=HeaderRules(
        names=r"(?:llm_provider-)?x-ratelimit-.+",
        words=frozenset({"ratelimit"}),
        buckets=r"x-ratelimit-(?P<what>remaining|reset|limit)(?:-(?P<bucket>[\w-]{1,40}))?",
    ),
)


ZAI_RULES: tuple[Rule, ...] = (
    rule(
        "zai.code", "quota", r"code\W{1,4}(?:1308|1310|1316)\b|\[(?:1308|1310|1316)\]", anywhere=True, stage=Stage.CODE
    ),
)

ZAI = Provider(
    name="zai",
    rules=ZAI_RULES,
    # Its resets are in China time without a zone, also where a proxy translated the sentence.
    zones=(
        ZoneRule(
            zone=CHINA_TIME,
            providers=frozenset({"zai-api", "zai"}),
            pattern=re.compile(r"\[1308\]|\"code\":\s?\"?1308"),
            unless=KANA,
        ),
    ),
)
