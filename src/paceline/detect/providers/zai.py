"""Z.ai: its error codes. What it and other Chinese services print as sentences is in `generic.py`."""

import re

from paceline.detect.provider import Provider, ZoneRule
from paceline.detect.providers.generic import CHINA_TIME, KANA
from paceline.detect.rules import Rule, Stage, rule

RULES: tuple[Rule, ...] = (
    rule(
        "zai.code", "quota", r"code\W{1,4}(?:1308|1310|1316)\b|\[(?:1308|1310|1316)\]", anywhere=True, stage=Stage.CODE
    ),
)

PROVIDER = Provider(
    name="zai",
    rules=RULES,
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
