"""The providers and agent CLIs that are known, and detection with all of them. `paceline.detect` exports it.

To add a CLI, write its folder and add it to the two tuples (see CONTRIBUTING.md).
"""

from collections.abc import Iterable

from paceline.agents import aider, claude, codex, copilot, gemini, openclaw, opencode, other_clis, qwen
from paceline.agents.dialect import STATUS_IN_ERROR, AgentCli, ErrorNotices, NoticePatterns, NoticeReader
from paceline.agents.stream.flood import LineWords
from paceline.core.signals import Signal
from paceline.detect import observation_reader, shared_rules
from paceline.detect.observation import Observation, Reading
from paceline.detect.provider import Provider, ProviderSet


class CliSet:
    """The known CLIs in their order, with the providers whose limits they print."""

    def __init__(self, clis: Iterable[AgentCli], *, unknown: AgentCli, limits: ProviderSet) -> None:
        self.limits = limits
        self._clis = {cli.name: cli for cli in clis}
        self._unknown = unknown
        rules = [cli.notices for cli in (*self._clis.values(), unknown)]
        self.notices = NoticePatterns(rules)
        patterns = (pattern for each in rules for pattern in each.all_patterns())
        self.line_words = LineWords(limits.hints, (*patterns, STATUS_IN_ERROR))

    def cli(self, name: str) -> AgentCli:
        """Return a CLI by its name. An unknown one is read like any command that may print the shared format."""
        return self._clis.get(name, self._unknown)

    def stderr_reader(self, cli: AgentCli) -> NoticeReader:
        """Return a new reader of a CLI's stderr."""
        if cli.stderr is not None:
            return cli.stderr()
        return ErrorNotices(self.notices.first_line, self.notices.last_line)


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
