"""The reports of a worker on their way to the leader: numbered, repeated until confirmed, and none of them twice."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import msgspec

from paceline.hosts.messages import Call, CallReport, NumberedReport, Report, SessionReport
from paceline.store.rules import storable_text, storable_value

MOST_BYTES = 256 * 1024
"""How much goes into one request: a small part of what an API accepts, and far more than the news of a second."""


class Outbox:
    """Reports that the leader has not confirmed.

    What was sent once keeps its number and its content. What was not is joined with later news of the same session, so
    a long cut of the link does not fill the memory.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sent: list[NumberedReport] = []
        self._waiting: list[Report] = []
        self.news = asyncio.Event()
        """Set when there is something to send."""

    @property
    def is_empty(self) -> bool:
        return not self._sent and not self._waiting

    def add(self, report: Report) -> None:
        """Take a report to send."""
        if isinstance(report, SessionReport):
            report = self._joined_with_earlier(report)
        self._waiting.append(_encodable(report))
        self.news.set()

    def batch(self) -> tuple[NumberedReport, ...]:
        """Return the reports to send now: first those that were sent without an answer."""
        self.news.clear()
        if not self._sent:
            self._number_next()
        return tuple(self._sent)

    def confirm(self, through: int) -> None:
        """Forget the reports that the leader has taken."""
        self._sent = [each for each in self._sent if each.number > through]
        if self._sent or self._waiting:
            self.news.set()

    def start_over(self, is_kept: Callable[[Report], bool]) -> None:
        """Begin a new joining: numbers start again, and only some of the reports are sent to it."""
        unconfirmed = [each.report for each in self._sent] + self._waiting
        self._numbers = itertools.count(1)
        self._sent = []
        self._waiting = [report for report in unconfirmed if is_kept(report)]
        if self._waiting:
            self.news.set()

    def forget_session(self, attempt_id: str) -> None:
        """Forget unsent reports about a session: it is read again from its beginning."""
        self._waiting = [
            each for each in self._waiting if not isinstance(each, SessionReport) or each.attempt_id != attempt_id
        ]

    def _number_next(self) -> None:
        size = 0
        while self._waiting and size < MOST_BYTES:
            report = self._waiting.pop(0)
            size += len(msgspec.json.encode(report))
            self._sent.append(NumberedReport(next(self._numbers), report))

    def _joined_with_earlier(self, report: SessionReport) -> SessionReport:
        """Return the report with the signals of an unsent one about the same session, which it replaces."""
        for place, earlier in enumerate(self._waiting):
            if not isinstance(earlier, SessionReport) or earlier.attempt_id != report.attempt_id:
                continue
            if earlier.is_catching_up or earlier.state is None or report.is_catching_up or report.state is None:
                continue
            del self._waiting[place]
            return msgspec.structs.replace(report, signals=earlier.signals + report.signals)
        return report


def _encodable(report: Report) -> Report:
    """Return the report with what UTF-8 cannot encode replaced: agents print half characters, and files have names."""
    try:
        msgspec.json.encode(report)
    except UnicodeEncodeError:
        if isinstance(report, CallReport):  # its result is encoded already
            return msgspec.structs.replace(report, text=storable_text(report.text) or "")
        return msgspec.convert(storable_value(msgspec.to_builtins(report)), type(report))
    return report


KEPT_RESULTS = 256
"""Results that stay known, for a leader that asks again because the first answer was lost. Most are a few words."""

RunCall = Callable[[Call], Awaitable[CallReport]]
"""Does what a call asks for. An error is part of the report."""


class LeaderCalls:
    """Runs calls beside each other, each as a task."""

    def __init__(self, run: RunCall, outbox: Outbox) -> None:
        self._run = run
        self._outbox = outbox
        self._running: dict[str, asyncio.Task[None]] = {}
        self._done: dict[str, CallReport] = {}

    def take(self, call: Call) -> None:
        """Begin a call. One that runs is left alone; one that is done is reported again."""
        if call.call_id in self._running:
            return
        if (report := self._done.get(call.call_id)) is not None:
            self._outbox.add(report)
            return
        self._running[call.call_id] = asyncio.create_task(self._do(call))

    async def _do(self, call: Call) -> None:
        try:
            report = await self._run(call)
        finally:
            del self._running[call.call_id]
        if report.error is None:  # what failed may succeed when it is asked for again
            self._done[call.call_id] = report
        while len(self._done) > KEPT_RESULTS:
            del self._done[next(iter(self._done))]
        self._outbox.add(report)

    def close(self) -> None:
        """Give up what runs. Work in threads ends by itself, unreported."""
        for task in self._running.values():
            task.cancel()
