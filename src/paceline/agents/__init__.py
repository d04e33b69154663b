"""Agent CLIs as data: one profile per agent says how to start, resume and read it."""

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
