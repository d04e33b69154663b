"""aider: it prints text only, and its own notices stand between the agent's prose on stdout."""

import re

from paceline.detect.notices import OwnLines
from paceline.detect.provider import AgentCli, Provider
from paceline.detect.providers.anthropic import ASSUMED_FORMAT

_OWN_LINE = re.compile(
    r"(?:> )?(?:Unexpected error: )?(?:litellm\.|The API provider)|(?:> )?Retrying in [\d.]+ seconds"
)


def _notices() -> OwnLines:
    return OwnLines(_OWN_LINE)


PROVIDER = Provider(name="aider", clis=(AgentCli(name="aider", dialect=ASSUMED_FORMAT, stdout_notices=_notices),))
