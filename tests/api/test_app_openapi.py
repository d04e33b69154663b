"""Everything schemathesis can think of against the document: no 500, no hang, answers as described, and a request that
is refused has changed nothing."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.daemon import Daemon, daemon_in

from paceline.api.app import ROUTES, build_document

DOCUMENT = build_document(ROUTES)
del DOCUMENT["security"]  # who may come in is tried elsewhere: here everything has the token
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
ENDLESS = "/v1/events"
OPERATIONS = {
    f"{method.upper()} {path}": SCHEMA[path][method]
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if path != ENDLESS
}
LABELS = sorted(OPERATIONS, key=lambda label: (label.startswith("DELETE"), label.endswith("/cancel")))
"""What takes away comes last, so that there is something left to ask for."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 16
LONGEST_WAIT_SECONDS = 0.02
LONGEST_ANSWER_SECONDS = 10.0
TOML = """
[pool]
runs = "none"
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
"""


class Background:
    """A daemon on a loop of its own, in a thread: schemathesis asks from outside of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.session = requests.Session()
        self.session.trust_env = False

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        (self._folder / "bin").mkdir()
        # An empty PATH: whatever campaigns are thought of, none of them can run anything.
        async with daemon_in(self._folder, TOML, {"PATH": str(self._folder / "bin")}) as daemon:
            daemon.engine.governor.hold("agent:command", "nothing is to run here", now=daemon.context.now)
            daemon.add("docs", "true", "a", "b")
            self.daemon = daemon
            self.session.headers["authorization"] = f"Bearer {daemon.tokens.full}"
            self._ready.set()
            await self._end.wait()

    def __enter__(self) -> "Background":
        self._thread.start()
        assert self._ready.wait(LONGEST_ANSWER_SECONDS)
        self.slot_id = self.take_slot()
        return self

    def take_slot(self) -> str:
        answer = self.session.post(f"{self.daemon.url}/v1/slots", json={"scope": "umans", "wait": 0, "ttl": 3600})
        return str(answer.json()["id"])

    def release(self, slot_id: str) -> None:
        self.session.delete(f"{self.daemon.url}/v1/slots/{slot_id}")

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self.session.close()

    def digest(self) -> str:
        """Of all that a request could change, taken on the daemon's own loop."""

        async def take() -> str:
            return digest_of(self.daemon)

        return asyncio.run_coroutine_threadsafe(take(), self._loop).result(LONGEST_ANSWER_SECONDS)


def digest_of(daemon: Daemon) -> str:
    store, governor = daemon.store, daemon.engine.governor
    snapshot = governor.snapshot()
    values: list[Any] = [
        store.campaigns(),
        sorted(store.counts().items()),
        store.units(limit=1000),
        store.slots(),
        [stored.event for stored in store.events(limit=100_000) if stored.event.name.startswith("control.")],
        sorted(snapshot.limits.items(), key=str),
        sorted(snapshot.cooldowns.items(), key=str),
        sorted(status.scope for status in governor.statuses(now=daemon.context.now) if status.configured is not None),
    ]
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()


@pytest.fixture(scope="module")
def background(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    with Background(tmp_path_factory.mktemp("schemathesis")) as made:
        yield made


def known_names(background: "Background") -> st.SearchStrategy[dict[str, str]]:
    """Names of what there is, for the parameters of paths: those that are thought of hardly ever exist."""
    return st.fixed_dictionaries(
        {
            "provider_id": st.sampled_from(
                ["umans", "anthropic/max-1", "anthropic/*/opus-*", "sessions", "campaign:docs"]
            ),
            "name": st.just("docs"),
            "unit_id": st.sampled_from(["docs/a", "docs/b"]),
            "slot_id": st.just(background.slot_id),
            "request_id": st.just("req-none"),
        }
    )


def with_names(case: Case[Any], names: dict[str, str] | None) -> None:
    for parameter in case.path_parameters or {}:
        if names is not None:
            case.path_parameters[parameter] = names[parameter]


def hurried(case: Case[Any]) -> Case[Any]:
    """A wait for a slot that is as long as the test has time for."""
    if isinstance(case.body, dict) and isinstance(wait := case.body.get("wait"), int | float) and wait > 0:
        case.body["wait"] = min(wait, LONGEST_WAIT_SECONDS)
    return case


@pytest.mark.parametrize("label", LABELS)
def test_whatever_is_asked_is_answered_as_described(background: Background, label: str) -> None:
    operation = OPERATIONS[label]
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(modes), st.none() | known_names(background))
    def ask(case: Case[Any], names: dict[str, str] | None) -> None:
        with_names(case, names)
        before = background.digest()
        answer = hurried(case).call(
            base_url=background.daemon.url, session=background.session, timeout=LONGEST_ANSWER_SECONDS
        )
        case.validate_response(answer, checks=CHECKS)
        if 400 <= answer.status_code < 500:
            assert background.digest() == before, (answer.status_code, answer.text)
        if label == "POST /v1/slots" and answer.status_code == 201:
            background.release(answer.json()["id"])  # it would run out in the middle of another request

    ask()
