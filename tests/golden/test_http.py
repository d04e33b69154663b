"""HTTP answers of a real daemon: every route of the public contract, its errors included, is as recorded."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.golden.command import Home
from tests.golden.daemon import Daemon, daemon_in
from tests.golden.normal import normal
from tests.golden.plans import SETTINGS
from tests.golden.recording import Recordings

from paceline.testing import FakeProvider

AT_ONCE = '[providers.acme]\ncooldown = "0s"\n[providers.anthropic]\ncooldown = "0s"\n'
"""Nothing cools: whether a released slot still counts would depend on how fast the machine is."""
SPENT_FOR_HOURS = 'echo "Claude AI usage limit reached|$(($(date +%s) + 14000))"; exit 1'
WAITS = "while [ ! -e go ]; do sleep 0.05; done"


@pytest.fixture
def daemon(home: Home) -> Iterator[Daemon]:
    home.write("paceline.toml", SETTINGS.replace("[limits]", '[limits]\n"acme" = 2\n"acme/*/large" = 1') + AT_ONCE)
    with daemon_in(home) as made:
        yield made


def campaign(name: str, units: dict[str, str], **settings: object) -> dict[str, Any]:
    """Return a plan as it is posted, of shell commands by unit id."""
    return {
        "campaign": {"name": name, "command": ["sh", "-c", "{prompt}"], **settings},
        "unit": [{"id": unit, "prompt": command} for unit, command in units.items()],
    }


# -- capacity --------------------------------------------------------------------------------------


def test_capacity(daemon: Daemon, recordings: Recordings) -> None:
    for method, path, body in (
        ("GET", "/concurrency/limits", None),
        ("GET", "/concurrency/limits/umans", None),
        ("GET", "/concurrency/limits/nobody", None),
        ("PUT", "/concurrency/limits/umans", {"limit": 5}),
        ("PUT", "/concurrency/limits/anthropic%2Fmax-1", {"limit": 7}),
        ("GET", "/concurrency/limits/anthropic%2Fmax-1", None),
        ("PUT", "/concurrency/limits/umans", {"limit": 0}),
        ("PUT", "/concurrency/limits/umans", {"limit": 1.5}),
        ("PUT", "/concurrency/limits/umans", {"limit": "many"}),
        ("PUT", "/concurrency/limits/umans", {"limit": True}),
        ("PUT", "/concurrency/limits/umans", {}),
        ("PUT", "/concurrency/limits/a%2F%2Fb", {"limit": 1}),
        ("DELETE", "/concurrency/limits/anthropic%2Fmax-1", None),
        ("DELETE", "/concurrency/limits/nobody", None),
        ("GET", "/concurrency/cooldown/umans", None),
        ("PUT", "/concurrency/cooldown/umans", {"cooldownMs": 1500}),
        ("PUT", "/concurrency/cooldown/umans", {"cooldownMs": -1}),
        ("GET", "/concurrency/cooldown/nobody", None),
        ("POST", "/concurrency/restore/umans", None),
        ("POST", "/concurrency/restore/nobody", None),
        ("GET", "/concurrency/status", None),
        ("GET", "/concurrency/nothing", None),
        ("GET", "/v1/pool", None),
        ("PUT", "/v1/pool", {"sessions": 3}),
        ("PUT", "/v1/pool", {"sessions": None}),
        ("PUT", "/v1/pool", {"sessions": 0}),
        ("PUT", "/v1/pool", {"session": 1}),
        ("GET", "/v1/scopes", None),
        ("GET", "/v1/scopes?scope=umans&scope=nobody", None),
        ("GET", "/v1/accounts", None),
        ("GET", "/v1/windows", None),
        ("GET", "/v1/status", None),
    ):
        daemon.ask(method, path, body)

    recordings.compare("http/capacity", daemon.answers)


def test_slots_and_signals(daemon: Daemon, recordings: Recordings) -> None:
    """The model's cap is promised word for word: `large at its cap (1/1) on max-1`."""
    scope = "acme/max-1/large"
    taken = daemon.ask("POST", "/v1/slots", {"scope": scope, "wait": 1, "session": "s1", "priority": 2, "ttl": 60})
    daemon.ask("POST", "/v1/slots", {"scope": scope, "wait": 0})
    daemon.ask("POST", "/v1/slots", {"scope": scope, "wait": 0.05, "priority": 1})
    path = f"/v1/slots/{taken['id']}"
    daemon.ask("GET", "/v1/scopes?scope=acme&scope=acme/max-1/large")
    for method, route, body in (
        ("POST", f"{path}/renew", None),
        ("POST", f"{path}/signal", {"kind": "rate_limited", "retry_after": 3000, "cause": "concurrency"}),
        ("POST", f"{path}/signal", {"kind": "nonsense"}),
        ("POST", f"{path}/signal", {"kind": "budget", "used_ratio": 0.5, "window": "5h"}),
        ("POST", "/v1/slots/nobody/renew", None),
        ("POST", "/v1/slots/nobody/signal", {"kind": "succeeded"}),
        ("DELETE", path, None),
        ("DELETE", path, None),
        ("DELETE", "/v1/slots/nobody", None),
        ("POST", "/v1/slots", {"scope": scope, "wait": 0}),
        ("POST", "/v1/slots", {"scope": "a//b", "wait": 0}),
        ("POST", "/v1/slots", {"wait": 0}),
        ("POST", "/v1/slots", {"scope": "other", "wait": -1}),
        ("POST", "/v1/slots", {"scope": "other", "wait": 0, "ttl": 0}),
        ("POST", "/v1/slots", {"scope": "other", "wait": 0, "idempotency_key": "k1"}),
        ("POST", "/v1/slots", {"scope": "other", "wait": 0, "idempotency_key": "k1"}),
        ("POST", "/v1/signals", {"scope": "held/key", "kind": "billing_stop", "detail": "the login has expired"}),
        ("POST", "/v1/signals", {"scope": "small", "kind": "platform_limit", "limit": 2, "in_use": 3}),
        ("POST", "/v1/slots", {"scope": "held/key", "wait": 0}),
        ("GET", "/v1/scopes", None),
        ("GET", "/concurrency/status", None),
        ("GET", "/v1/windows", None),
        ("POST", "/concurrency/restore/acme%2Fmax-1%2Flarge", None),
        ("POST", "/concurrency/restore/held%2Fkey", None),
        ("GET", "/v1/scopes?scope=held/key", None),
    ):
        daemon.ask(method, route, body)

    recordings.compare("http/slots", without_slot_ids(daemon.answers))


def without_slot_ids(answers: Any) -> Any:
    """Slots are named by chance."""
    names = {answer["json"]["id"] for answer in answers if "id" in (answer["json"] or {}) and "token" in answer["json"]}
    text = json.dumps(answers)
    for name in names:
        text = text.replace(name, "<slot>")
    return json.loads(text)


# -- campaigns -------------------------------------------------------------------------------------


def test_campaigns_and_units(daemon: Daemon, recordings: Recordings) -> None:
    units = {"good": "echo fine", "bad": "echo broken >&2; exit 3", "later": "exit 75"}
    daemon.ask("POST", "/v1/campaigns", campaign("docs", units, priority=2, max_attempts=1, timeout="30m"))
    daemon.wait_for("unit.requeued", "docs/later")
    for path in (
        "/v1/campaigns",
        "/v1/campaigns/docs",
        "/v1/campaigns/nobody",
        "/v1/units?campaign=docs",
        "/v1/units?campaign=docs&state=quarantined",
        "/v1/units?campaign=docs&limit=1",
        "/v1/units?state=asleep",
        "/v1/units?limit=0",
        "/v1/units?cursor=nonsense",
        "/v1/units/docs%2Fgood",
        "/v1/units/docs%2Fbad",
        "/v1/units/docs%2Fnobody",
        "/v1/units/docs%2Fgood/why",
        "/v1/units/docs%2Fbad/why",
        "/v1/units/docs%2Flater/why",
        "/v1/units/docs%2Fgood/log",
        "/v1/units/docs%2Fbad/log",
        "/v1/status",
    ):
        daemon.ask("GET", path)
    for method, path, body in (
        ("PATCH", "/v1/campaigns/docs", {"priority": 4}),
        ("PATCH", "/v1/campaigns/docs", {"max_sessions": 2}),
        ("PATCH", "/v1/campaigns/docs", {"priority": "high"}),
        ("PATCH", "/v1/campaigns/nobody", {"priority": 1}),
        ("POST", "/v1/campaigns/docs/pause", None),
        ("POST", "/v1/campaigns/docs/resume", None),
        ("POST", "/v1/campaigns/docs/pause", None),
        ("POST", "/v1/campaigns/docs/retry", None),
        ("GET", "/v1/units/docs%2Fbad/why", None),
        ("POST", "/v1/campaigns/nobody/pause", None),
        ("POST", "/v1/campaigns", campaign("docs", units | {"bad": "true", "new": "true"}, priority=4)),
        ("POST", "/v1/campaigns?update=true", campaign("docs", units | {"bad": "true"}, priority=4)),
        ("POST", "/v1/campaigns", campaign("docs", {})),
        ("POST", "/v1/campaigns", {"campaign": {"name": "x", "agent": "clode"}, "unit": [{"id": "a", "prompt": "b"}]}),
        ("POST", "/v1/campaigns", {"campaign": {"nam": "x"}}),
        ("POST", "/v1/campaigns/docs/cancel", None),
        ("POST", "/v1/campaigns/docs/resume", None),
        ("DELETE", "/v1/campaigns/docs", None),
        ("DELETE", "/v1/campaigns/docs", None),
        ("GET", "/v1/campaigns", None),
        ("POST", "/v1/pause", None),
        ("POST", "/v1/resume", None),
    ):
        daemon.ask(method, path, body)

    recordings.compare("http/campaigns", without_measures(daemon.answers))


def test_what_runs_waits_and_is_parked(daemon: Daemon, recordings: Recordings) -> None:
    on_account = {"accounts": ["max-1"], "model": "opus-4-6"}
    daemon.ask("POST", "/v1/campaigns", campaign("quota", {"spent": SPENT_FOR_HOURS}, **on_account))
    daemon.wait_for("unit.parked", "quota/spent")
    daemon.ask("POST", "/v1/campaigns", campaign("docs", {"runs": WAITS, "waits": "true"}))
    daemon.wait_for("unit.started", "docs/runs")
    while not daemon.send("GET", "/v1/overview").json()["waits"]:
        pass  # that the other one waits is no event; a daemon that never shows it is ended, and the request fails
    for path in (
        "/v1/units",
        "/v1/units?state=running",
        "/v1/units/quota%2Fspent/why",
        "/v1/units/docs%2Fwaits/why",
        "/v1/sessions",
        "/v1/windows",
        "/v1/accounts",
        "/v1/overview",
        "/v1/status",
        "/v1/timeline",
        "/v1/timeline?hours=0",
        "/v1/campaigns",
    ):
        daemon.ask("GET", path)
    recordings.compare("http/metrics", metrics_of(daemon.send("GET", "/metrics").text))
    daemon.home.write("go", "")
    daemon.wait_for("unit.done", "docs/waits")
    events = first_events(daemon, 12)

    recordings.compare("http/running", without_measures(daemon.answers))
    recordings.compare("http/events", events)


def without_measures(value: Any) -> Any:
    """Leave out what depends on how fast the machine is; the process of a session is known a moment after its start."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in ("throughput", "eta", "series")}
        return {key: "<pid>" if key == "pid" else without_measures(each) for key, each in kept.items()}
    return [without_measures(each) for each in value] if isinstance(value, list) else value


def metrics_of(text: str) -> dict[str, list[str]]:
    """Return the names of our metrics with their labels, without the values."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("paceline_"):
            name, _, labels = line.rsplit(" ", 1)[0].partition("{")
            kept = re.sub(r'(le|version)="[^"]*"', r'\1="<value>"', labels.rstrip("}"))
            found.setdefault(name, set()).add(kept)
    return {name: sorted(labels) for name, labels in sorted(found.items())}


def first_events(daemon: Daemon, count: int) -> list[Any]:
    """Read the stored events from the stream."""
    read: list[Any] = []
    with daemon.client.stream("GET", "/v1/events?after=0") as stream:
        fields: dict[str, str] = {}
        for line in stream.iter_lines():
            name, _, content = line.partition(": ")
            if line:
                fields[name] = content
                continue
            if "data" in fields:
                read.append({**fields, "data": normal(json.loads(fields["data"]), daemon.home.folder)})
                if len(read) == count:
                    return read
            fields = {}
    return read


# -- access, the OpenAPI document and the gateway --------------------------------------------------


def compare_access(daemon: Daemon, recordings: Recordings) -> None:
    """Compare who may come in, and what is described."""
    base = daemon.client.base_url
    with httpx.Client(base_url=base, trust_env=False) as stranger:
        answers = {
            "healthz": stranger.get("/healthz"),
            "without token": stranger.get("/v1/status"),
            "concurrency without token": stranger.get("/concurrency/limits"),
            "wrong token": stranger.get("/v1/status", headers={"authorization": "Bearer wrong"}),
            "page without token": stranger.get("/"),
            "metrics without token": stranger.get("/metrics"),
            "gateway without token": stranger.post("/gateway/work-key/v1/messages", json={}),
            "other host": daemon.client.get("/healthz", headers={"host": "example.org"}),
            "no such route": daemon.client.get("/v1/nothing"),
            "wrong method": daemon.client.delete("/v1/status"),
            "no JSON": daemon.client.put("/v1/pool", content=b"{", headers={"content-type": "application/json"}),
            "page": daemon.client.get("/"),
            "gateway, unknown account": daemon.client.post("/gateway/nobody/v1/messages", json={}),
        }
    kept = {name: kept_of(answer, daemon) for name, answer in answers.items()}

    recordings.compare("http/access", kept)
    recordings.compare("http/openapi", shape_of(daemon.send("GET", "/openapi.json").json()))


def kept_of(answer: httpx.Response, daemon: Daemon) -> dict[str, Any]:
    kind = answer.headers.get("content-type", "").partition(";")[0]
    found = normal(answer.json(), daemon.home.folder) if "json" in kind else None
    return {"status": answer.status_code, "type": kind, "json": found}


def shape_of(document: dict[str, Any]) -> Any:
    return without_prose({"paths": document["paths"], "components": document["components"]})


def without_prose(value: Any, parent: str = "") -> Any:
    """Leave out sentences and the names of functions; a property that is called like them stays."""
    if isinstance(value, dict):
        is_named = parent in ("properties", "paths", "schemas", "responses")
        prose = () if is_named else ("description", "summary", "operationId", "title", "examples", "example", "tags")
        return {key: without_prose(each, key) for key, each in sorted(value.items()) if key not in prose}
    return [without_prose(each) for each in value] if isinstance(value, list) else value


def test_access_the_openapi_document_and_the_gateway(home: Home, recordings: Recordings) -> None:
    home.environ["ANTHROPIC_API_KEY"] = "sk-ant-test"
    with FakeProvider() as provider:
        limits = '[limits]\n"anthropic/work-key" = 1'
        home.write(
            "paceline.toml", SETTINGS.replace("https://api.anthropic.com", provider.url).replace("[limits]", limits)
        )
        with daemon_in(home) as daemon:
            compare_access(daemon, recordings)
            body = {"model": "claude-opus-4-6", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
            headers = {"x-paceline-session": "s1", "anthropic-version": "2023-06-01"}
            passed = daemon.send("POST", "/gateway/work-key/v1/messages", body, headers=headers)
            slot = daemon.send("POST", "/v1/slots", {"scope": "anthropic/work-key/claude-opus-4-6", "wait": 5}).json()
            assert "token" in slot
            refused = daemon.send(
                "POST", "/gateway/work-key/v1/messages", body, headers=headers | {"x-paceline-max-wait": "0.1"}
            )

    recordings.compare(
        "http/gateway",
        {
            "passed": {"status": passed.status_code, "keys": sorted(passed.json()), **paceline_headers(passed)},
            "refused": {**kept_of(refused, daemon), "retry-after": "retry-after" in refused.headers},
        },
    )


def paceline_headers(answer: httpx.Response) -> dict[str, str]:
    headers = {name: each for name, each in answer.headers.items() if name.startswith("x-paceline-")}
    varying = {"x-paceline-waited-ms": "<ms>", "x-paceline-request-id": "<id>"}
    return {name: varying.get(name, each) for name, each in sorted(headers.items())}
