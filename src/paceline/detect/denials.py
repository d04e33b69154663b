"""The tool calls that a CLI denied its agent during one run, and the sentence about them.

Here: counting, and what a person can do about it. Never here: how one CLI reports a denial; its provider reads that.
"""

from paceline.detect.run_facts import Denial, DenialCause

NAMED_TOOLS = 3
"""Tools named in the sentence: enough to recognise the cause, and still one line."""
_CALLS_KEPT = 4096
"""Calls remembered to count each once. A run that is denied more often is held anyway."""
_CAUSES: dict[DenialCause, str] = {
    "untrusted": "this folder was never trusted for the account",
    "sandbox": "the agent runs in a read-only sandbox",
    "permission": "the agent's permissions do not allow it",
}
_ADVICE: dict[DenialCause, str] = {
    "untrusted": 'set permissions = "edit" in the plan, or trust the folder',
    "sandbox": 'set permissions = "edit" in the plan',
    "permission": 'set permissions = "edit" or "full" in the plan, or allow the tool in the CLI\'s own settings',
}


class DenialRecord:
    """What was denied in one run."""

    def __init__(self) -> None:
        self.is_untrusted = False
        """Whether the CLI warned that it ignores permissions because the folder is not trusted."""
        self._is_listed = False
        self._events = 0
        self._notices = 0
        self._calls: set[str] = set()
        self._tools: dict[str, None] = {}
        self._noticed_tools: dict[str, None] = {}
        self._causes: set[DenialCause] = set()

    @property
    def count(self) -> int:
        """The number of denied calls. The warning alone counts as one where the CLI prints no list of denials."""
        return max(self._events, self._notices) or int(self.is_untrusted and not self._is_listed)

    @property
    def reason(self) -> str | None:
        """What was denied, why, and what to do about it; None if nothing was."""
        if not self.count:
            return None
        cause = self._cause()
        times = "once" if self.count == 1 else f"{self.count} times"
        return f"{self._what()} denied {times}: {_CAUSES[cause]}; {_ADVICE[cause]}"

    def add(self, denials: tuple[Denial, ...], *, is_list: bool) -> None:
        """Count the denials that one event reports."""
        self._is_listed |= is_list
        for denial in denials:
            if denial.call and denial.call in self._calls:
                continue
            if denial.call and len(self._calls) < _CALLS_KEPT:
                self._calls.add(denial.call)
            self._events += 1
            self._add_name(denial, self._tools)

    def add_notice(self, denial: Denial) -> None:
        """Count a denial that is reported as text. Some CLIs report each twice: as event and as text."""
        self._notices += 1
        self._add_name(denial, self._noticed_tools)

    def _add_name(self, denial: Denial, tools: dict[str, None]) -> None:
        self._causes.add(denial.cause)
        if denial.tool and len(tools) <= NAMED_TOOLS:
            tools[denial.tool] = None

    def _what(self) -> str:
        tools = list(self._tools or self._noticed_tools)
        if not tools:
            return "a tool was" if self.count == 1 else "tools were"
        named = ", ".join(tools[:NAMED_TOOLS])
        if len(tools) > NAMED_TOOLS:
            return f"{named} and other tools were"
        return f"{named} {'was' if len(tools) == 1 else 'were'}"

    def _cause(self) -> DenialCause:
        if self.is_untrusted:
            return "untrusted"
        return "sandbox" if "sandbox" in self._causes else "permission"
