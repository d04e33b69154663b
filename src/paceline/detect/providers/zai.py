"""Z.ai: its codes. What it and other Chinese services say in words is in `generic.py`. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

RULES: tuple[Rule, ...] = (
    rule("zai.code", "quota", r"code\W{1,4}13(?:08|10|16)\b|\[13(?:08|10|16)\]", anywhere=True, stage=Stage.CODE),
)
