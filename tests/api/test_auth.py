"""Authentication: tokens, cookies, hosts, origins, and the headers for a browser."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.daemon import Daemon, RunDaemon

from paceline.api.auth import LOGIN_POLICY
from paceline.api.tokens import change_key_of, cookie_of, load_token, load_tokens, own_token_of
from paceline.engine.command_log import person
from paceline.errors import InvalidSettings

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
GUARDED = ("/v1/status", "/concurrency/limits", "/metrics", "/openapi.json", "/assets/app.js", "/nothing")


# -- tokens ------------------------------------------------------------------------------------------


def test_tokens_are_made_once_for_their_owner_alone(tmp_path: Path) -> None:
    made = load_tokens(tmp_path)
    again = load_tokens(tmp_path)

    assert (made.full, made.read_only) == (again.full, again.read_only)
    assert made.full != made.read_only
    assert len(made.full) >= 32
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("token", "token-readonly")] == [0o600, 0o600]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token", "token-readonly"]


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("", 0o600, "has no token"),
        ("short", 0o600, "has no token"),
        ("x" * 5000, 0o600, "has no token"),
        ("x" * 40 + "\nyyy", 0o600, "has no token"),
        ("ä" * 40, 0o600, "has no token"),
        ("x" * 40, 0o640, "can be read by others (mode 640)"),
        ("x" * 40, 0o604, "can be read by others (mode 604)"),
    ],
)
def test_a_token_that_is_none_or_known_to_others(tmp_path: Path, content: str, mode: int, words: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)

    with pytest.raises(InvalidSettings) as refused:
        load_token(path)

    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_token_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()

    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_token(tmp_path / "token")


async def test_without_the_token_nobody_comes_in(daemon: Daemon) -> None:
    full = daemon.tokens.full
    wrong = [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer nonsense"},
        {"authorization": f"Bearer {full}x"},
        {"authorization": f"Bearer {full[:-1]}"},
        {"authorization": f"Basic {full}"},
        {"authorization": full},
        {"authorization": f"Bearer {cookie_of(full.encode()).decode()}"},
        {"cookie": f"paceline={full}"},
        {"cookie": f"paceline-{urlsplit(daemon.url).port}={full}"},
        {"x-paceline-token": full},
    ]
    async with daemon.new_client() as stranger:
        for headers in wrong:
            for path in GUARDED:
                answer = await stranger.get(path, headers=headers)
                assert answer.status_code == 401, (path, headers)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert full not in answer.text
        refused = await stranger.get("/v1/status")
        old = await stranger.get("/concurrency/status")
    assert refused.json()["error"] == "unauthorized"
    assert "paceline token" in refused.json()["detail"]
    assert list(old.json()) == ["error"]


async def test_the_scheme_is_written_in_any_way(daemon: Daemon) -> None:
    async with daemon.new_client() as client:
        answer = await client.get("/v1/status", headers={"authorization": f"bearer {daemon.tokens.full}"})

    assert answer.status_code == 200


async def test_a_read_only_token_looks_and_changes_nothing(daemon: Daemon) -> None:
    async with daemon.new_client(daemon.tokens.read_only) as reader:
        for path in ("/v1/status", "/v1/overview", "/concurrency/limits", "/openapi.json", "/v1/units", "/metrics"):
            assert (await reader.get(path)).status_code == 200
        assert (await reader.head("/v1/status")).status_code == 200
        refused = [
            await reader.put("/v1/pool", json={"sessions": 1}),
            await reader.put("/concurrency/limits/umans", json={"limit": 1}),
            await reader.post("/v1/pause"),
            await reader.post("/v1/slots", json={"scope": "umans", "wait": 0}),
            await reader.get("/v1/slots/some"),
            await reader.get("/gateway/max-1/v1/messages"),
        ]

    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert refused[0].json()["error"] == "forbidden"
    assert await daemon.get("/v1/pool") == {"sessions": 4}


# -- the page ----------------------------------------------------------------------------------------


async def test_the_printed_address_opens_the_page_and_keeps_no_token(daemon: Daemon) -> None:
    async with daemon.new_client() as browser:
        opened = await browser.get(f"/?token={daemon.tokens.full}")
        (cookie,) = opened.headers.get_list("set-cookie")
        page = await browser.get("/")
        status = await browser.get("/v1/status")
        asset = await browser.get("/assets/app.js")
        again = await browser.get("/assets/app.js", headers={"if-none-match": asset.headers["etag"]})

    change_key = change_key_of(daemon.tokens.full.encode()).decode()
    assert (opened.status_code, opened.headers["location"]) == (303, f"/#csrf={change_key}")
    name, _, rest = cookie.partition("=")
    value, *attributes = rest.split("; ")
    assert name == f"paceline-{urlsplit(daemon.url).port}"
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert value == cookie_of(daemon.tokens.full.encode()).decode()
    assert daemon.tokens.full not in cookie
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert status.status_code == 200
    assert asset.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (again.status_code, again.content) == (304, b"")


async def test_the_address_of_a_reader_opens_a_page_that_only_looks(daemon: Daemon) -> None:
    async with daemon.new_client() as browser:
        opened = await browser.get(f"/?token={daemon.tokens.read_only}")
        keys = [change_key_of(token.encode()).decode() for token in (daemon.tokens.read_only, daemon.tokens.full)]

        assert opened.headers["location"] == "/"
        assert (await browser.get("/v1/status")).status_code == 200
        for key in keys:
            changed = await browser.put("/v1/pool", json={"sessions": 1}, headers={"x-paceline-csrf": key})
            assert changed.status_code == 403


async def test_the_cookie_alone_reads_and_changes_nothing(daemon: Daemon) -> None:
    """Every server on another port of this machine receives the cookie, and could send it back to us."""
    plan = {"name": "pwned", "agent": "command", "command": ["id"], "units": [{"id": "a", "prompt": "b"}]}
    wrong = {"x-paceline-csrf": cookie_of(daemon.tokens.full.encode()).decode()}
    async with daemon.new_client() as thief:
        await thief.get(f"/?token={daemon.tokens.full}")
        read = await thief.get("/v1/status")
        refused = [
            await thief.put("/v1/pool", json={"sessions": 1}),
            await thief.put("/v1/pool", json={"sessions": 1}, headers=wrong),
            await thief.post("/v1/campaigns", json=plan),
            await thief.post("/v1/slots", json={"scope": "umans", "wait": 0}),
            await thief.get("/v1/slots/some"),
        ]

    assert read.status_code == 200
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert "x-paceline-csrf" in refused[0].json()["detail"]
    assert await daemon.get("/v1/pool") == {"sessions": 4}


async def test_without_a_cookie_the_page_says_how_to_open_it(daemon: Daemon) -> None:
    async with daemon.new_client() as browser:
        answers = [await browser.get("/"), await browser.get("/?token=wrong"), await browser.get("/?token=")]

    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert "paceline up" in answer.text
        assert "set-cookie" not in answer.headers


# -- hosts and origins -------------------------------------------------------------------------------


async def test_only_our_own_names_are_answered(daemon: Daemon) -> None:
    port = urlsplit(daemon.url).port
    ours = [f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}"]
    others = ["evil.example", f"evil.example:{port}", "127.0.0.1", "localhost:1", f"127.0.0.1.evil.example:{port}", ""]
    for path in ("/healthz", "/v1/status", "/", "/concurrency/status"):
        for host in ours:
            assert (await daemon.client.get(path, headers={"host": host})).status_code == 200, (path, host)
        for host in others:
            answer = await daemon.client.get(path, headers={"host": host})
            assert answer.status_code in (400, 421), (path, host)


async def test_a_host_that_names_a_user_or_comes_twice_is_none_of_ours(daemon: Daemon) -> None:
    own = urlsplit(daemon.url).netloc
    codes = [
        await _health_code(daemon, *hosts)
        for hosts in ((own,), (f"evil.example@{own}",), ("evil.example", own), (own, own))
    ]

    assert codes == ["200", "421", "421", "421"]


async def _health_code(daemon: Daemon, *hosts: str) -> str:
    """Byte by byte: clients do not send such requests."""
    at = urlsplit(daemon.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    lines = ["GET /healthz HTTP/1.1", *(f"Host: {host}" for host in hosts), "", ""]
    writer.write("\r\n".join(lines).encode())
    status = (await reader.readline()).decode().split()[1]
    writer.close()
    await writer.wait_closed()
    return status


async def test_other_names_are_answered_where_the_settings_name_them(run_daemon: RunDaemon) -> None:
    async with run_daemon('[api]\nhosts = ["paceline.example.com", "other.example:8443"]\n') as daemon:
        codes = {
            host: (await daemon.client.get("/v1/status", headers={"host": host})).status_code
            for host in ("paceline.example.com", "paceline.example.com:443", "other.example:8443", "other.example")
        }

    assert codes == {
        "paceline.example.com": 200,
        "paceline.example.com:443": 200,
        "other.example:8443": 200,
        "other.example": 421,
    }


async def test_what_another_site_asks_for_with_our_cookie_is_refused(daemon: Daemon) -> None:
    own = daemon.url
    port = urlsplit(own).port
    foreign = [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://localhost:{port}"},  # not the name that this request is for
        {"origin": f"http://127.0.0.1:{port}.evil.example"},
        {"origin": "http://127.0.0.1"},
        {"origin": f"ftp://127.0.0.1:{port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    async with daemon.new_client() as browser:
        await browser.get(f"/?token={daemon.tokens.full}")
        for headers in foreign:
            assert (await browser.get("/v1/status", headers=headers)).status_code == 403, headers
            assert (await browser.put("/v1/pool", json={"sessions": 1}, headers=headers)).status_code == 403, headers
            assert (await daemon.client.post("/v1/pause", headers=headers)).status_code == 403, headers
        change_key = change_key_of(daemon.tokens.full.encode()).decode()
        same = {"origin": own, "sec-fetch-site": "same-origin", "x-paceline-csrf": change_key}
        assert (await browser.put("/v1/pool", json={"sessions": 3}, headers=same)).status_code == 200
        assert (await browser.get("/v1/status", headers={"sec-fetch-site": "none"})).status_code == 200
    assert await daemon.get("/v1/pool") == {"sessions": 3}


async def test_every_answer_says_what_a_browser_may_do(daemon: Daemon) -> None:
    async with daemon.new_client() as stranger:
        answers = [await stranger.get(path) for path in ("/", "/healthz", "/v1/status")]
    answers += [await daemon.client.get(path) for path in ("/", "/v1/status", "/nothing", "/concurrency/status")]

    assert [answer.headers["content-security-policy"] for answer in answers] == [LOGIN_POLICY, *[POLICY] * 6]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
    assert [answer.headers["cache-control"] for answer in answers[1:4]] == ["no-store", "no-store", "no-cache"]


async def test_the_page_has_no_inline_script_or_style(daemon: Daemon) -> None:
    page = (await daemon.client.get("/")).text.lower()

    assert "<script>" not in page
    assert "<style" not in page
    assert " style=" not in page
    assert "javascript:" not in page


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2Fapp.py", "%2e%2e/tokens.py", "/etc/passwd", "", "nothing.js", "vendor"]
)
async def test_only_files_of_the_page_are_served(daemon: Daemon, path: str) -> None:
    answer = await daemon.client.get(f"/assets/{path}")

    assert answer.status_code == 404


# -- the fleet ---------------------------------------------------------------------------------------


async def test_a_person_of_another_home_uses_this_daemon_with_their_own_token(daemon: Daemon, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    token = own_token_of(daemon.store, other, "full")
    async with daemon.new_client(token) as client:
        changed = await client.put("/v1/pool", json={"sessions": 3})
    async with daemon.new_client() as browser:
        opened = await browser.get(f"/?token={token}")
        seen = await browser.get("/v1/status")
        change_key = {"x-paceline-csrf": opened.headers["location"].partition("#csrf=")[2]}
        clicked = await browser.put("/v1/pool", json={"sessions": 4}, headers=change_key)

    assert [answer.status_code for answer in (changed, opened, seen, clicked)] == [200, 303, 200, 200]
    assert _authors(daemon) == [f"{person()}-2 (token)", f"{person()}-2 (page)"]


async def test_an_engine_of_the_fleet_says_on_whose_behalf_it_asks(daemon: Daemon) -> None:
    behalf = {"x-paceline-on-behalf": "alice@box2\t(page)" + "x" * 1000}
    await daemon.client.put("/v1/pool", json={"sessions": 3}, headers={"x-paceline-on-behalf": "alice@box2 (page)"})
    await daemon.client.put("/v1/pool", json={"sessions": 4}, headers={"x-paceline-on-behalf": ""})
    await daemon.client.put("/v1/pool", json={"sessions": 5}, headers=behalf)
    async with daemon.new_client(daemon.tokens.read_only) as reader:
        refused = await reader.put("/v1/pool", json={"sessions": 6}, headers={"x-paceline-on-behalf": "root"})

    first, second, third = _authors(daemon)
    assert (first, second) == (f"alice@box2 (page) via {person()}", f"{person()} (token)")
    assert third == f"{('alice@box2(page)' + 'x' * 1000)[:199]} via {person()}"
    assert refused.status_code == 403


def _authors(daemon: Daemon) -> list[object]:
    events = [stored.event for stored in daemon.store.events()]
    return [event.fields.get("by") for event in events if event.name == "control.limit"]
