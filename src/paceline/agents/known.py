"""The providers and agent CLIs that are known, and detection with all of them. `paceline.detect` exports it.

To add a CLI, write its folder and add it to the two tuples (see CONTRIBUTING.md).
"""

import re
from collections.abc import Iterable
from functools import cached_property

from paceline.agents import aider, claude, codex, copilot, gemini, openclaw, opencode, other_clis, qwen
from paceline.agents.dialect import STATUS_IN_ERROR, AgentCli, Denial, ErrorNotices, NoticeReader, NoticeRules
from paceline.agents.stream.flood import LineWords
from paceline.core.signals import Signal
from paceline.detect import observation_reader, shared_rules
from paceline.detect.observation import Observation, Reading
from paceline.detect.provider import Provider, ProviderSet, any_of


class CliSet:
    """The known CLIs in their order, with the providers whose limits they print and what their notices look like."""

    def __init__(self, clis: Iterable[AgentCli], *, unknown: AgentCli, limits: ProviderSet) -> None:
        self.limits = limits
        self._clis = {cli.name: cli for cli in clis}
        self._unknown = unknown
        self._notices = [cli.notices for cli in (*self._clis.values(), unknown)]
        patterns = (getattr(rules, name) for rules in self._notices for name in rules.__struct_fields__)
        self.line_words = LineWords(limits, (*patterns, STATUS_IN_ERROR))
        self.stopped_answers = frozenset(filter(None, (cli.stopped_answer for cli in self._clis.values())))
        """Each is all that some CLI prints as an answer when it is interrupted."""

    def cli(self, name: str) -> AgentCli:
        """Return a CLI by its name. An unknown one is read like any command that may print the shared format."""
        return self._clis.get(name, self._unknown)

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """The patterns of all CLIs: each field of `NoticeRules` combined."""
        names = NoticeRules.__struct_fields__
        return {name: any_of(getattr(rules, name) for rules in self._notices) for name in names}

    def stderr_reader(self, cli: AgentCli) -> NoticeReader:
        """Return a new reader of a CLI's stderr."""
        if cli.stderr is not None:
            return cli.stderr()
        return ErrorNotices(self.patterns["first_line"], self.patterns["last_line"], cli)

    def denial_in(self, notice: str) -> Denial | None:
        """Return the denied tool call that a notice reports."""
        found = self.patterns["denied"].search(notice)
        return None if found is None else Denial(tool=next((tool for tool in found.groups() if tool), ""))

    def session_in(self, notice: str) -> str | None:
        """Return the session id in a hint how to resume a conversation."""
        found = self.patterns["resume"].match(notice)
        return found[found.lastindex] if found and found.lastindex else None


PROVIDERS: tuple[Provider, ...] = (
    openclaw.PROVIDER,
    copilot.PROVIDER,
    other_clis.PROVIDER,
    claude.PROVIDER,
    qwen.PROVIDER,
    codex.PROVIDER,
    gemini.PROVIDER,
    shared_rules.OPENAI,
    shared_rules.ZAI,
    opencode.PROVIDER,
    shared_rules.PROVIDER,  # last: the shared sentences decide where no provider's own does
)
"""In the order in which rules of one stage are tried. Rules of an earlier stage always come first (`Stage`)."""
AGENT_CLIS: tuple[AgentCli, ...] = (
    *openclaw.CLIS,
    *copilot.CLIS,
    *claude.CLIS,
    *qwen.CLIS,
    *codex.CLIS,
    *gemini.CLIS,
    *opencode.CLIS,
    *aider.CLIS,
    *other_clis.CLIS,
)

LIMITS = ProviderSet(PROVIDERS)
CLIS = CliSet(AGENT_CLIS, unknown=other_clis.UNKNOWN_CLI, limits=LIMITS)


def explain(observation: Observation, *, providers: ProviderSet = LIMITS) -> Reading:
    """Return the signals of an observation and the names of the rules that fired. Never raises."""
    return observation_reader.explain(observation, providers)


def detect(observation: Observation) -> list[Signal]:
    """Return what an observation means, as a possibly empty list of signals. Never raises, whatever it is given."""
    return explain(observation).signals
