"""The plans and settings that the golden tests share. Every unit is a shell command."""

import json

SETTINGS = """\
[pool]
sessions = 1
[limits]
"anthropic/*/opus-*" = 4
"umans" = 3
[providers.umans]
cooldown = "350ms"
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
reserve = 0.2
[accounts.work-key]
provider = "anthropic"
kind = "metered"
base_url = "https://api.anthropic.com"
key_env = "ANTHROPIC_API_KEY"
"""


def plan(name: str, units: dict[str, str], head: str = "", *, outputs: dict[str, str] | None = None) -> str:
    """Write a plan of shell commands, by unit id."""
    lines = [f'[campaign]\nname = "{name}"\nagent = "command"\ncommand = ["sh", "-c", "{{prompt}}"]', head]
    for unit, command in units.items():
        lines.append(f'[[unit]]\nid = "{unit}"\nprompt = {json.dumps(command)}')
        if outputs and unit in outputs:
            lines.append(f'output = "{outputs[unit]}"')
    return "\n".join(lines) + "\n"


SPENT_ONCE = 'test -e spent || { touch spent; echo "Claude AI usage limit reached|$(($(date +%s) + 4))"; exit 1; }'
"""Meets a quota window that is spent for four seconds, in the words of a real agent; then it goes well."""
