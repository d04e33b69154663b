"""Keys of clients over HTTP, and that such a key opens nothing but the gateway."""

import re

from tests.daemon import Daemon

from paceline.api.app import ROUTES


async def test_a_key_is_answered_once_listed_without_its_text_and_revoked(daemon: Daemon) -> None:
    created = await daemon.ask("POST", "/v1/keys", {"name": "team", "parallel": 3, "budget": "$50/month"}, code=201)
    text = created.pop("key")
    listed = await daemon.get("/v1/keys")
    limit = daemon.engine.governor.get_limit("key:team")
    taken = await daemon.ask("POST", "/v1/keys", {"name": "team"}, code=409)
    revoked = await daemon.ask("DELETE", "/v1/keys/team")

    assert text.startswith("pk-paceline-")
    assert listed == {"keys": [created]}
    assert created == {
        "name": "team",
        "pool": None,
        "models": [],
        "rpm": None,
        "tpm": None,
        "parallel": 3,
        "priority_max": 0,
        "weight": 1.0,
        "budget": "$50/month",
        "spent": 0.0,
        "is_reached": False,
        "resumes_at": None,
        "all_paths": False,
        "created_at": created["created_at"],
        "revoked_at": None,
    }
    assert limit == 3
    assert "there is a key 'team' already" in str(taken)
    assert (revoked["ok"], revoked["name"]) == (True, "team")
    assert await daemon.get("/v1/keys") == {"keys": []}
    assert daemon.engine.governor.get_limit("key:team") is None
    names = [each.event.name for each in daemon.store.events() if each.event.name.startswith("key.")]
    assert names == ["key.created", "key.revoked"]


async def test_wrong_bodies_are_refused_and_change_nothing(daemon: Daemon) -> None:
    for body in ({}, {"name": "a", "wieght": 2}, {"name": "a", "rpm": "x"}, {"name": "a", "budget": "50"}):
        await daemon.ask("POST", "/v1/keys", body, code=400)
    await daemon.ask("DELETE", "/v1/keys/nobody", code=404)

    assert await daemon.get("/v1/keys") == {"keys": []}


async def test_a_key_opens_no_route_of_the_api(daemon: Daemon) -> None:
    created = await daemon.ask("POST", "/v1/keys", {"name": "team"}, code=201)
    routes = {(str(method), path) for route in ROUTES for method in route.http_methods for path in route.paths}  # type: ignore[attr-defined]
    opened = []
    for method, path in sorted(routes | {("GET", "/"), ("GET", "/openapi.json"), ("GET", "/metrics")}):
        headers = {"authorization": f"Bearer {created['key']}", "x-paceline-token": created["key"]}
        url = re.sub(r"\{\w+:str\}", "team", path)
        answer = await daemon.client.request(method, url, headers=headers)
        if answer.status_code not in (401, 403):
            opened.append((method, path, answer.status_code))

    assert opened == [("GET", "/healthz", 200)]  # it needs no token at all
    assert [each["name"] for each in (await daemon.get("/v1/keys"))["keys"]] == ["team"]
