"""The configuration of a fake provider: frozen values that can be read from and written as JSON. No behaviour here.

`Scenario` describes the provider; it is itself the `Limits` of every account. An account is an API key, and
`accounts` gives single keys limits of their own. Times are seconds; `at` and `start` count from the creation of the
provider, on its clock. Model names are matched as shell patterns (`*opus*`).
"""

from typing import Literal

import msgspec

Endpoint = Literal["model", "usage"]


class CapacityChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From `at` on, an account may have `concurrency` requests at once (None: any number)."""

    at: float
    concurrency: int | None


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quota window. It begins with its first request, is spent after `requests` or `tokens`, and reopens by itself.

    Use the names of the unified headers (`5h`, `7d`, `7d_opus`); each protocol shows them in its own way.
    """

    name: str = "5h"
    seconds: float = 5 * 3600.0
    requests: int | None = None
    tokens: int | None = None
    models: str = "*"
    late: float = 0.0
    """How long after the announced reset it really reopens; negative: earlier."""


class Burst(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `starts` requests may begin within `seconds`."""

    starts: int
    seconds: float = 1.0


class Penalty(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a 429: for `seconds` requests of the account run `slowdown` times slower, or not at all (None)."""

    seconds: float
    slowdown: float | None = None


class Episode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An outage of the provider: every request gets `error` from `start` on, for `seconds`."""

    start: float
    seconds: float
    error: str = "529"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool that an answer asks the client to run, by its name in the request."""

    name: str
    arguments: dict[str, object] = {}


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a script: the next `times` matching requests (None: all) get `error`, or `ok`: a normal answer.

    `retry_after` and `resets_in` are what the error announces, if it announces anything. `tool` makes an `ok` a
    call of that tool, after which a client asks again in the same turn.
    """

    error: str
    times: int | None = 1
    models: str = "*"
    keys: str = "*"
    answers: int = 0
    """Only requests whose conversation already has this many answers."""
    prompts: str = "*"
    """Only conversations in which a message of the user matches this pattern."""
    endpoint: Endpoint = "model"
    tool: ToolCall | None = None
    text: str | None = None
    """What the answer says; None: which message of the conversation it answers."""
    retry_after: float = 3.0
    resets_in: float = 7200.0
    limit: int = 50


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one account. None: no such limit."""

    concurrency: int | None = None
    model_concurrency: dict[str, int] = {}
    """Concurrency by model pattern. Every matching model has its own count; the first match applies."""
    lag: float = 0.0
    """A finished request still counts for this long."""
    changes: tuple[CapacityChange, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    windows: tuple[Window, ...] = ()
    burst: Burst | None = None
    penalty: Penalty | None = None


class Scenario(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole provider. By default it answers everything at once."""

    accounts: dict[str, Limits] = {}
    keys: tuple[str, ...] | None = None
    """The accepted keys; None: any."""
    overloads: tuple[Episode, ...] = ()
    latency: float = 0.0
    """Seconds until the first byte of an answer."""
    tokens_per_second: float | None = None
    reply_tokens: int | None = None
    """Length of each answer, one word per token; None: as long as its sentence is."""
    announce: bool = True
    """Return whether responses have rate, window and retry headers."""
    usage: bool = True
    """Return whether `GET /usage` answers; otherwise it is a 404."""
    models: tuple[str, ...] = ("claude-opus-4-6", "claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro", "qwen3-coder")
    script: tuple[Step, ...] = ()
