"""Authentication, the key that is sent, and the address: only the account's own upstream can be reached."""

from collections.abc import Callable

import pytest
from tests.gateway.gateway_harness import KEY, TOKEN, GatewayHarness, account
from tests.gateway.raw_http import Message, RawUpstream, answering, connect, ok, post

from paceline.agents.account import Account, gateway_key

OWN = b"sk-my-own-key"
LOGIN = b"sk-ant-oat01-abcdef"
CHATGPT_LOGIN = b"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2F1dGgub3BlbmFpLmNvbSIsImNoYXRncHQiOjF9.c2ln"
WORK_SESSIONS = gateway_key(TOKEN, "work").encode()
KEY_HEADERS = (b"x-api-key", b"authorization", b"x-goog-api-key", b"api-key")


async def asked(
    *headers: bytes,
    target: bytes = b"/gateway/work/v1/messages",
    method: bytes = b"POST",
    hosts: frozenset[str] | None = None,
    environ: dict[str, str] | None = None,
    is_token: Callable[[bytes], bool] | None = None,
    is_session_key: Callable[[str, bytes], bool] | None = None,
    **fields: str,
) -> tuple[Message, Message | None]:
    """Return the response, and the request that the upstream saw, if any."""
    seen: list[Message] = []
    body = b'{"model": "some-model"}' if method == b"POST" else b""
    lines = b"".join(b"%b\r\n" % line for line in (b"Host: paceline:7433", *headers))
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(
            account(upstream.url + "/base", **fields),
            hosts=hosts,
            environ=environ,
            is_token=is_token,
            is_session_key=is_session_key,
        ) as harness,
        await connect(harness.port) as client,
    ):
        client.send(b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (method, target, lines, len(body), body))
        got = await client.read_message()
        assert harness.in_flight == 0
    for request in seen:
        assert TOKEN.encode() not in request.first_line + repr(request.headers).encode()
    return got, seen[0] if seen else None


def keys_in(request: Message | None) -> list[tuple[bytes, bytes]]:
    assert request is not None
    return [(name.lower(), value) for name, value in request.headers if name.lower() in KEY_HEADERS]


@pytest.mark.parametrize(
    ("provider", "path", "header", "expected"),
    [
        ("anthropic", b"/v1/messages", b"X-Api-Key: %b", (b"x-api-key", KEY.encode())),
        ("anthropic", b"/v1/messages", b"Authorization: Bearer %b", (b"x-api-key", KEY.encode())),
        ("openai", b"/v1/chat/completions", b"Authorization: Bearer %b", (b"authorization", b"Bearer " + KEY.encode())),
        ("openai", b"/v1/responses", b"authorization: bearer %b", (b"authorization", b"Bearer " + KEY.encode())),
        ("google", b"/v1beta/models/m:generateContent", b"x-goog-api-key: %b", (b"x-goog-api-key", KEY.encode())),
        ("vllm", b"/v1/chat/completions", b"Authorization: Bearer %b", (b"authorization", b"Bearer " + KEY.encode())),
    ],
)  # fmt: skip
async def test_the_token_in_the_key_position_is_replaced_by_the_accounts_key(
    provider: str, path: bytes, header: bytes, expected: tuple[bytes, bytes]
) -> None:
    got, seen = await asked(header % TOKEN.encode(), target=b"/gateway/work" + path, provider=provider)

    assert got.status == 200
    assert keys_in(seen) == [expected]


async def test_the_token_in_the_query_is_replaced_too() -> None:
    target = b"/gateway/work/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse&key=%b&x=1" % TOKEN.encode()

    got, seen = await asked(target=target, provider="google")

    assert (got.status, got.header(b"x-paceline-scope")) == (200, b"google/work/gemini-2.5-pro")
    assert seen is not None
    in_query = b"key=" + KEY.encode() in seen.first_line
    assert in_query or keys_in(seen) == [(b"x-goog-api-key", KEY.encode())]
    assert b"alt=sse" in seen.first_line
    assert b"x=1" in seen.first_line


async def test_the_token_beside_the_clients_own_key_lets_that_key_pass() -> None:
    got, seen = await asked(b"X-Paceline-Token: " + TOKEN.encode(), b"x-api-key: " + OWN)

    assert got.status == 200
    assert keys_in(seen) == [(b"x-api-key", OWN)]
    assert seen is not None
    assert not any(name.lower().startswith(b"x-paceline") for name, _ in seen.headers)


async def test_the_token_in_any_position_is_found_beside_other_keys() -> None:
    _, seen = await asked(b"x-api-key: " + OWN, b"Authorization: Bearer " + TOKEN.encode())

    assert keys_in(seen) == [(b"x-api-key", KEY.encode())]


async def test_the_token_in_both_places_means_the_accounts_key() -> None:
    token = TOKEN.encode()

    _, seen = await asked(b"x-paceline-token: " + token, b"x-api-key: " + token, b"Authorization: Bearer " + OWN)

    assert keys_in(seen) == [(b"x-api-key", KEY.encode())]


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (b"x-api-key: wrong",),
        (b"x-api-key: ",),
        (b"Authorization: Bearer " + TOKEN.encode()[:-1],),
        (b"Authorization: Basic " + TOKEN.encode(),),
        (b"x-paceline-token: wrong", b"x-api-key: " + OWN),
    ],
)
async def test_a_request_without_the_token_is_rejected(headers: tuple[bytes, ...]) -> None:
    got, seen = await asked(*headers)

    assert (got.status, seen) == (401, None)
    assert got.body.startswith(
        b'{"type":"error","error":{"type":"authentication_error","message":"the gateway requires'
    )


@pytest.mark.parametrize(
    ("provider", "header"),
    [
        ("anthropic", b"Authorization: Bearer " + LOGIN),
        ("anthropic", b"x-api-key: " + LOGIN),
        ("openai", b"Authorization: Bearer " + CHATGPT_LOGIN),
        ("google", b"Authorization: Bearer ya29.a0AfB_byC"),
    ],
)
async def test_the_login_of_a_subscription_is_rejected_with_advice(provider: str, header: bytes) -> None:
    got, seen = await asked(b"x-paceline-token: " + TOKEN.encode(), header, provider=provider)

    assert (got.status, seen) == (403, None)
    assert b"`paceline run` or `paceline exec`" in got.body


async def test_a_login_beside_a_key_is_rejected_too() -> None:
    headers = (b"x-paceline-token: " + TOKEN.encode(), b"x-api-key: " + OWN, b"Authorization: Bearer " + LOGIN)

    got, seen = await asked(*headers)

    assert (got.status, seen) == (403, None)


async def test_a_login_in_the_accounts_variable_is_refused() -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), environ={"WORK_KEY": LOGIN.decode()})

    assert (got.status, seen) == (403, None)
    assert LOGIN not in got.body


async def test_a_subscription_account_is_rejected_with_advice() -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), kind="subscription")

    assert (got.status, seen) == (403, None)
    assert b"work is a subscription" in got.body
    assert b"`paceline run` or `paceline exec`" in got.body


async def test_a_key_that_is_not_set_is_named_by_its_variable() -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), environ={})

    assert (got.status, seen) == (401, None)
    assert b"work takes its key from WORK_KEY, which is not set" in got.body


async def test_a_key_that_was_read_with_its_line_end_is_sent_without() -> None:
    _, seen = await asked(b"x-api-key: " + TOKEN.encode(), environ={"WORK_KEY": f"{KEY}\n"})

    assert keys_in(seen) == [(b"x-api-key", KEY.encode())]


async def test_the_token_is_never_forwarded_in_another_header() -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), b"X-Other: " + TOKEN.encode())

    assert (got.status, seen) == (400, None)


@pytest.mark.parametrize("header", [b"x-api-key: %b", b"Authorization: Bearer %b"])
async def test_the_session_key_of_an_account_is_replaced_by_the_accounts_key(header: bytes) -> None:
    got, seen = await asked(header % WORK_SESSIONS)

    assert (got.status, keys_in(seen)) == (200, [(b"x-api-key", KEY.encode())])


async def test_the_session_key_of_another_account_is_rejected() -> None:
    got, seen = await asked(b"x-api-key: " + gateway_key(TOKEN, "other").encode())

    assert (got.status, seen) == (401, None)


async def test_the_session_key_is_never_forwarded_in_another_header() -> None:
    got, seen = await asked(b"x-api-key: " + WORK_SESSIONS, b"X-Other: " + WORK_SESSIONS)

    assert (got.status, seen) == (400, None)


async def test_an_unknown_account_gets_the_list_of_accounts() -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), target=b"/gateway/wrok/v1/messages")

    assert (got.status, seen) == (404, None)
    assert b"the gateway has no account 'wrok'; its accounts are: work" in got.body


@pytest.mark.parametrize(
    ("path", "start"),
    [
        (b"/v1/messages", b'{"type":"error","error":{"type":"authentication_error"'),
        (b"/v1/chat/completions", b'{"error":{"message":"'),
        (b"/v1beta/models/gemini-2.5-pro:generateContent", b'{"error":{"code":401,"message":"'),
    ],
)
async def test_errors_have_the_shape_of_the_protocol(path: bytes, start: bytes) -> None:
    got, _ = await asked(target=b"/gateway/work" + path, provider="vllm")

    assert got.body.startswith(start)
    assert got.header(b"content-type") == b"application/json"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"x-paceline-priority: high", b"x-paceline-priority"),
        (b"x-paceline-priority: 1.5", b"x-paceline-priority"),
        (b"x-paceline-max-wait: soon", b"x-paceline-max-wait"),
        (b"x-paceline-max-wait: -1", b"x-paceline-max-wait"),
        (b"x-paceline-max-wait: nan", b"x-paceline-max-wait"),
        (b"x-paceline-max-wait: inf", b"x-paceline-max-wait"),
        (b"x-paceline-session: ", b"x-paceline-session"),
        (b"x-paceline-session: " + b"s" * 201, b"x-paceline-session"),
    ],
)
async def test_a_header_of_ours_with_a_bad_value_is_named(header: bytes, name: bytes) -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), header)

    assert (got.status, seen) == (400, None)
    assert name in got.body


@pytest.mark.parametrize(
    "headers",
    [
        (b"Origin: https://evil.example",),
        (b"Origin: null",),
        (b"Sec-Fetch-Site: cross-site",),
    ],
)
async def test_web_pages_are_refused_even_with_the_token(headers: tuple[bytes, ...]) -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), *headers)

    assert (got.status, seen) == (403, None)


@pytest.mark.parametrize(("hosts", "status"), [({"paceline:7433"}, 200), ({"localhost:7433"}, 403)])
async def test_the_name_in_host_is_checked(hosts: set[str], status: int) -> None:
    got, _ = await asked(b"x-api-key: " + TOKEN.encode(), hosts=frozenset(hosts))

    assert got.status == status


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (b"", b"/base"),
        (b"/", b"/base/"),
        (b"?a=1", b"/base?a=1"),
        (b"//v1//messages", b"/base//v1//messages"),
        (b"/v1/%2Fx%20y?q=%2e%2e/..", b"/base/v1/%2Fx%20y?q=%2e%2e/.."),
        (b"/v1/...", b"/base/v1/..."),
        (b"/http://evil.example/", b"/base/http://evil.example/"),
        (b"/@evil.example", b"/base/@evil.example"),
    ],
)
async def test_path_and_query_are_appended_to_the_base_as_they_are(rest: bytes, expected: bytes) -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), target=b"/gateway/work" + rest, method=b"GET")

    assert got.status == 200
    assert seen is not None
    assert seen.first_line == b"GET %b HTTP/1.1" % expected


@pytest.mark.parametrize(
    "target",
    [
        b"/gateway/work/../secret",
        b"/gateway/work/v1/../../secret",
        b"/gateway/work/%2e%2e/secret",
        b"/gateway/work/.%2E/secret",
        b"/gateway/work/..%2fsecret",
        b"/gateway/work/v1%2F%2e%2e%5Csecret",
        b"/gateway/work/..;/secret",
        b"/gateway/work/v1/..",
        b"/gateway/work/./v1",
        b"/gateway/work/v1\\..\\..\\secret",
        b"/gateway/work/v1#/../x",
        b"/gateway/../work/v1",
        b"/gateway/work@evil.example/v1",
        b"/gateway/evil.example/v1",
        b"/gateway/",
        b"/gateway/%77ork/v1",
    ],
)
async def test_no_path_leads_out_of_the_base(target: bytes) -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), target=target, method=b"GET")

    assert (got.status in (400, 404), seen) == (True, None)


@pytest.mark.parametrize(
    "target", [b"http://evil.example/gateway/work/v1", b"//gateway/work/v1", b"/Gateway/work/v1", b"*"]
)
async def test_other_forms_of_a_target_do_not_reach_the_gateway(target: bytes) -> None:
    method = b"OPTIONS" if target == b"*" else b"GET"
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), target=target, method=method)

    assert seen is None
    assert got.header(b"x-paceline-waited-ms") is None


@pytest.mark.parametrize(
    "header",
    [b"X-Forwarded-Host: evil.example", b"Forwarded: host=evil.example", b"X-Original-URL: /x", b"X-HTTP-Host: evil"],
)
async def test_no_header_steers_where_a_request_goes(header: bytes) -> None:
    got, seen = await asked(b"x-api-key: " + TOKEN.encode(), header)

    assert got.status == 200
    assert seen is not None
    assert seen.first_line == b"POST /base/v1/messages HTTP/1.1"
    assert (seen.header(b"host") or b"").startswith(b"127.0.0.1:")


async def test_an_account_of_an_unknown_provider_without_a_base_url_has_no_route() -> None:
    nowhere = Account(name="lab", provider="mylab", kind="metered", key_env="WORK_KEY")
    async with GatewayHarness(nowhere) as harness, await connect(harness.port) as client:
        client.send(b"GET /gateway/lab/v1 HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\n\r\n" % TOKEN.encode())
        got = await client.read_message()

    assert got.status == 404
    assert b"lab has no base_url in paceline.toml" in got.body


async def test_sessions_of_other_homes_have_keys_for_their_accounts() -> None:
    known = {("work", b"key-of-a-session")}
    accepted, seen = await asked(b"x-api-key: key-of-a-session", is_session_key=lambda *given: given in known)
    refused, _ = await asked(b"x-api-key: %b" % WORK_SESSIONS, is_session_key=lambda *given: given in known)

    assert (accepted.status, keys_in(seen)) == (200, [(b"x-api-key", KEY.encode())])
    assert refused.status == 401


async def test_every_full_token_of_the_fleet_opens_the_gateway_and_is_never_forwarded() -> None:
    fleet = {b"token-of-another-home", TOKEN.encode()}
    got, seen = await asked(b"x-api-key: token-of-another-home", is_token=fleet.__contains__)
    beside, passed = await asked(
        b"x-api-key: %b" % OWN, b"x-paceline-token: token-of-another-home", is_token=fleet.__contains__
    )
    stray, _ = await asked(
        b"x-api-key: token-of-another-home", b"x-mine: token-of-another-home", is_token=fleet.__contains__
    )
    session, _ = await asked(b"x-api-key: %b" % WORK_SESSIONS, is_token=fleet.__contains__)
    unknown, _ = await asked(b"x-api-key: somebody", is_token=fleet.__contains__)
    revoked, _ = await asked(b"x-api-key: %b" % TOKEN.encode(), is_token=frozenset[bytes]().__contains__)

    assert (got.status, keys_in(seen)) == (200, [(b"x-api-key", KEY.encode())])
    assert (beside.status, keys_in(passed)) == (200, [(b"x-api-key", OWN)])
    assert [answer.status for answer in (stray, session, unknown, revoked)] == [400, 200, 401, 401]


async def test_a_head_that_repeats_the_one_before_is_forwarded_with_its_own_length() -> None:
    """What was read of a head is used for the next one on the connection."""
    seen: list[Message] = []
    bodies = [b'{"model": "opus"}', b'{"model": "opus", "x": 1}', b'{"model": "opus", "x": 2}']
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        for body in bodies:
            client.send(post(body, b"accept-encoding: gzip, br", b"x-tag: 1"))
            assert (await client.read_message()).status == 200

    assert [request.body for request in seen] == bodies
    assert [request.header(b"content-length") for request in seen] == [b"17", b"25", b"25"]
    heads = [[header for header in request.headers if header[0] != b"Content-Length"] for request in seen]
    assert heads[0] == heads[1] == heads[2]
    assert (b"accept-encoding", b"gzip") in heads[2]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (b"x-tag: 1", b"x-tag: 2", 200),
        (b"x-tag: 1", b"Origin: https://evil.example", 403),
        (b"Origin: https://evil.example", b"Origin: https://evil.example", 403),
        (b"x-tag: 1", b"x-paceline-priority: high", 400),
    ],
)
async def test_a_head_that_differs_from_the_one_before_is_read_again(before: bytes, after: bytes, status: int) -> None:
    seen: list[Message] = []
    async with (
        RawUpstream(answering(ok(), seen)) as upstream,
        GatewayHarness(account(upstream.url)) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post(b'{"model": "opus"}', before))
        await client.read_message()
        client.send(post(b'{"model": "opus"}', after))
        got = await client.read_message()

    assert got.status == status
    assert [request.header(b"x-tag") for request in seen][1:] == ([b"2"] if status == 200 else [])


async def test_a_token_that_was_revoked_is_refused_on_a_connection_that_has_used_it() -> None:
    tokens = [TOKEN.encode()]
    async with (
        RawUpstream(answering(ok(), [])) as upstream,
        GatewayHarness(account(upstream.url), is_token=lambda given: given in tokens) as harness,
        await connect(harness.port) as client,
    ):
        client.send(post())
        before = await client.read_message()
        tokens.clear()
        client.send(post())
        after = await client.read_message()

    assert (before.status, after.status) == (200, 401)
