"""Cursor: its slow pool, its connection errors, and a CLI that prints Claude Code's stream format."""

from paceline.detect.provider import AgentCli, Provider
from paceline.detect.providers.anthropic import FORMAT
from paceline.detect.rules import Rule, rule

RULES: tuple[Rule, ...] = (
    rule("cursor.slow-pool", "rate", r"using the slow pool", anywhere=True),
    rule(
        "cursor.connect",
        "overloaded",
        r"connect ?error:? \[?(?:resource_exhausted|unavailable)|\[(?:resource_exhausted|unavailable)\] error",
    ),
)

PROVIDER = Provider(name="cursor", rules=RULES, clis=(AgentCli(name="cursor-agent", dialect=FORMAT),))
