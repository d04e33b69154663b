"""The tokens of one run by kind and model: those that the CLI counted, and those of messages since.

Here: values that events add to. Never here: how one CLI writes them.
"""

import msgspec

from paceline.core.values.tokens import Tokens
from paceline.detect.run_facts import MessageHead, ReportedUsage

_MESSAGES_COUNTED = 64
"""Messages whose usage is kept apart: it is repeated with each part, and parts of several messages may interleave."""


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by model ('' where the CLI names none). `is_conversation`: those of earlier runs of it are included."""

    by_model: dict[str, Tokens]
    is_conversation: bool = False


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the latest request of the agent itself, as its CLI counted them. Sub-agents do not count."""

    first: Tokens
    last: Tokens

    @property
    def context(self) -> int:
        """The size of the conversation: what the latest request sent, cached or not."""
        return self.last.sent

    @property
    def uncached_first(self) -> int:
        """What the first request sent that was in no cache: after a resume, the context that is paid again."""
        return self.first.input + self.first.cache_write


class TokenRecord:
    """What was counted so far."""

    def __init__(self) -> None:
        self.requests: Requests | None = None
        self._reported: RunUsage | None = None
        self._messages: dict[str, MessageHead] = {}
        self._older: dict[str, Tokens] = {}
        self._older_total = 0

    @property
    def running_total(self) -> int:
        """Tokens of the messages since the CLI last counted, without cache reads."""
        if not self._messages:
            return self._older_total
        return self._older_total + sum(each.usage.total for each in self._messages.values() if each.usage is not None)

    @property
    def usage(self) -> RunUsage | None:
        """All that was counted, or None if nothing was."""
        if self._reported is None and not self._messages:
            return None
        by_model = {} if self._reported is None else dict(self._reported.by_model)
        for model, tokens in self._older.items():
            _add(by_model, model, tokens)
        for message in self._messages.values():
            if message.usage is not None:
                _add(by_model, message.model, message.usage.tokens)
        if not by_model:
            return None
        is_conversation = self._reported is not None and self._reported.is_conversation
        return RunUsage(by_model=by_model, is_conversation=is_conversation)

    def note_request(self, sent: Tokens) -> None:
        """Take one request of the agent. Further parts of its answer repeat it."""
        if sent.sent:
            first = sent if self.requests is None else self.requests.first
            self.requests = Requests(first=first, last=sent)

    def count_message(self, message: MessageHead) -> None:
        """Add the usage of a message, or of a further part of it."""
        usage = message.usage
        if usage is None:
            return
        counted = self._messages
        known = counted.get(message.id)
        if known is None and len(counted) == _MESSAGES_COUNTED:
            self._add_up(counted.pop(next(iter(counted))))
        if known is None or known.usage is None or usage.total >= known.usage.total:
            counted[message.id] = message

    def report(self, reported: ReportedUsage) -> None:
        """Take what the CLI itself counted. A turn that was broken off may count nothing although its messages did."""
        if reported.is_request:
            for tokens in reported.by_model.values():
                self.note_request(tokens)
        if reported.reach == "turn":
            turn = sum(_limited_total(tokens) for tokens in reported.by_model.values())
            if turn < self.running_total:
                self._take_over()
                return
            by_model = {} if self._reported is None else dict(self._reported.by_model)
            for model, tokens in reported.by_model.items():
                _add(by_model, model, tokens)
            self._replace(by_model, is_conversation=self._reported is not None and self._reported.is_conversation)
        else:
            self._replace(dict(reported.by_model), is_conversation=reported.reach == "conversation")

    def _take_over(self) -> None:
        usage = self.usage
        if usage is not None:
            self._replace(usage.by_model, is_conversation=usage.is_conversation)

    def _replace(self, by_model: dict[str, Tokens], *, is_conversation: bool) -> None:
        self._reported = RunUsage(by_model=by_model, is_conversation=is_conversation)
        self.forget_messages()

    def forget_messages(self) -> None:
        """Drop the messages up to here: the CLI has counted them itself."""
        self._messages.clear()
        self._older.clear()
        self._older_total = 0

    def _add_up(self, message: MessageHead) -> None:
        if message.usage is not None:
            _add(self._older, message.model, message.usage.tokens)
            self._older_total += message.usage.total


def _add(by_model: dict[str, Tokens], model: str, tokens: Tokens) -> None:
    by_model[model] = by_model.get(model, Tokens()).plus(tokens)


def _limited_total(tokens: Tokens) -> int:
    return tokens.input + tokens.cache_write + tokens.output
