"""aider: it prints text only, and its own notices stand between the agent's prose on stdout."""

import re

from paceline.agents.claude import ASSUMED_FORMAT
from paceline.agents.dialect import AgentCli

_OWN_LINE = re.compile(
    r"(?:> )?(?:Unexpected error: )?(?:litellm\.|The API provider)|(?:> )?Retrying in [\d.]+ seconds"
)

CLIS = (AgentCli(name="aider", dialect=ASSUMED_FORMAT, stdout_notice=_OWN_LINE),)
