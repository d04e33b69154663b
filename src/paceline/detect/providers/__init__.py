"""What each provider prints about limits: one module per provider, and the one list of them all.

To add a provider, write its module with a `PROVIDER` and add that to `PROVIDERS` (see docs/detection.md).
"""

from paceline.detect.provider import Provider
from paceline.detect.provider_set import ProviderSet
from paceline.detect.providers import (
    aider,
    anthropic,
    codex,
    copilot,
    cursor,
    gemini,
    generic,
    network,
    openai,
    openclaw,
    opencode,
    qwen,
    zai,
)

PROVIDERS: tuple[Provider, ...] = (
    openclaw.PROVIDER,
    copilot.PROVIDER,
    cursor.PROVIDER,
    anthropic.PROVIDER,
    qwen.PROVIDER,
    codex.PROVIDER,
    gemini.PROVIDER,
    openai.PROVIDER,
    zai.PROVIDER,
    opencode.PROVIDER,
    aider.PROVIDER,
    network.PROVIDER,
    generic.PROVIDER,  # last: the shared sentences decide where no provider's own does
)
"""In the order in which rules of one stage are tried. Rules of an earlier stage always come first (`rules.py`)."""

KNOWN = ProviderSet(PROVIDERS, unknown_cli=generic.UNKNOWN_CLI)
"""All known providers, as the readers use them."""
