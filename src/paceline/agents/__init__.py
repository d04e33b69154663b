"""Agent CLIs: how each is started, what it prints, and what its own files would bill.

Each CLI has a folder: `NAME.toml` (its profile), `__init__` (its dialect: sentences, events, headers, notices) and
`configuration` (keys in its own files). Of all CLIs:

- `account`: who pays for a session, and where its CLI keeps the login
- `profile`: the fields of a profile; `cli_facts`: tested versions and model names
- `launch`: arguments, input and variables of a session
- `billing_check`, `surroundings`: the inspection of a CLI's own files
- `dialect`: the form of a dialect; `known`: all of them; `other_clis`: those without a profile
- `stream/`: the output of one run; `transcript_reader`: the same for people
"""

from paceline.agents.account import Account
from paceline.agents.launch import PreparedSession, Task, prepare_session
from paceline.agents.profile import AgentProfile, agent_names, check_agent, load_agent, parse_agent

__all__ = [
    "Account",
    "AgentProfile",
    "PreparedSession",
    "Task",
    "agent_names",
    "check_agent",
    "load_agent",
    "parse_agent",
    "prepare_session",
]
