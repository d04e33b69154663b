"""The report of how much detection depends on single rules, and how far the other rules carry.

For each family of formats (the samples of the providers that share one table of rules) the report counts how
many samples are still read right when that whole table is held out, as if its provider had never been seen.
For each rule it counts the samples that only this rule reads right.

`python -m tests.detect.held_out` prints it; so does every test run over the sample messages.
"""

from collections import Counter
from functools import cache

import msgspec
from tests.detect.scoring import SOME_TIME, Sample, kind_of, moments_to_see, right_times, samples, times_of

from paceline.agents import claude, codex, copilot, gemini, openclaw, other_clis
from paceline.agents.known import LIMITS, PROVIDERS
from paceline.detect import explain, shared_rules
from paceline.detect.provider import ProviderSet, Rule

FAMILIES: dict[str, tuple[tuple[Rule, ...], frozenset[str]]] = {
    "Claude Code, Anthropic": (claude.RULES, frozenset(("claude-code", "anthropic-api", "claude-relay-service"))),
    "Codex": (codex.RULES, frozenset(("codex",))),
    "Google": (
        gemini.RULES,
        frozenset(("gemini-cli", "gemini-api", "vertex", "antigravity-api", "antigravity-cli", "crush", "aider")),
    ),
    "OpenAI's shape": (
        shared_rules.OPENAI_RULES,
        frozenset(
            ("openai-api", "azure-openai", "groq", "openrouter", "together", "bedrock", "ollama", "mistral", "xai")
        ),
    ),
    "Chinese services": (
        shared_rules.ZAI_RULES,
        frozenset(("zai-api", "moonshot-api", "kimi-cli", "qwen-code", "minimax", "deepseek")),
    ),
    "other tools": (
        openclaw.RULES + copilot.RULES + other_clis.RULES,
        frozenset(("opencode", "copilot-cli", "cursor-agent", "openclaw", "grok-cli", "droid", "amp", "kiro")),
    ),
    "shared: sentences": (shared_rules.SENTENCES, frozenset()),
    "shared: codes and statuses": (shared_rules.CODES, frozenset()),
}


@cache
def known_without(names: frozenset[str]) -> ProviderSet:
    """Return the known providers without the rules of these names."""
    kept = (
        msgspec.structs.replace(provider, rules=tuple(rule for rule in provider.rules if rule.name not in names))
        for provider in PROVIDERS
    )
    return ProviderSet(kept)


class FamilyReport(msgspec.Struct, frozen=True):
    """A family's samples with all rules, and with its own held out."""

    name: str
    rules: int
    rows: int
    right: int
    right_held_out: int
    resets: int
    resets_held_out: int
    false_alarms_held_out: int


def family_reports(rows: list[Sample]) -> list[FamilyReport]:
    return [_family(name, own, providers, rows) for name, (own, providers) in FAMILIES.items()]


def _family(name: str, own: tuple[Rule, ...], providers: frozenset[str], rows: list[Sample]) -> FamilyReport:
    mine = [row for row in rows if not providers or row.provider in providers]
    rest = known_without(frozenset(rule.name for rule in own))
    right = right_held_out = resets = resets_held_out = false_alarms = 0
    for row in mine:
        kind, reset = judge(row, LIMITS)
        kind_held_out, reset_held_out = judge(row, rest)
        right += kind
        right_held_out += kind_held_out
        resets += reset
        resets_held_out += reset_held_out
        false_alarms += row.expected.kind == "none" and not kind_held_out
    return FamilyReport(name, len(own), len(mine), right, right_held_out, resets, resets_held_out, false_alarms)


def judge(row: Sample, providers: ProviderSet) -> tuple[bool, bool]:
    """Return whether these providers read kind and reset of a sample right, at the first moment it may be seen."""
    seen_at, tz = next(iter(moments_to_see(row)), (SOME_TIME, "UTC"))
    signals = explain(row.seen(seen_at, tz), providers=providers).signals
    right = right_times(row, seen_at, tz)
    times = times_of(signals, seen_at)
    return kind_of(signals) in row.kinds, not right or any(abs(a - b) <= 1 for a in right for b in times)


def sole_readers(rows: list[Sample]) -> Counter[str]:
    """Count for each rule the samples that only this rule reads right."""
    names = {rule.name for rule in LIMITS.rules}
    sole: Counter[str] = Counter()
    for row in rows:
        seen_at, tz = next(iter(moments_to_see(row)), (SOME_TIME, "UTC"))
        fired = [name for name in explain(row.seen(seen_at, tz)).rules if name in names]
        for name in fired:
            sole[name] += not judge(row, known_without(frozenset({name})))[0]
    return sole


def report() -> list[str]:
    rows = samples()
    lines = [
        "detection with each family of formats held out (kinds right, resets right, false alarms):",
        f"  {'family':28} {'rules':>5} {'rows':>5} {'all rules':>10} {'held out':>10} {'resets':>8} {'alarms':>7}",
    ]
    for family in family_reports(rows):
        rows_in = max(1, family.rows)
        lines.append(
            f"  {family.name:28} {family.rules:5} {family.rows:5} {family.right / rows_in:10.0%}"
            f" {family.right_held_out / rows_in:10.0%} {family.resets_held_out / rows_in:8.0%}"
            f" {family.false_alarms_held_out:7}"
        )
    sole = sole_readers(rows)
    leaning = ", ".join(f"{name} {count}" for name, count in sole.most_common(12) if count)
    lines.append(f"  samples that only one rule reads right: {sum(sole.values())} of {len(rows)}; most: {leaning}")
    return lines


if __name__ == "__main__":
    print("\n".join(report()))
