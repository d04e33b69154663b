"""The model and the tokens that a request asks for, read from a body in pieces."""

from paceline.protocols.request_reader import RequestReader


def test_the_model_is_the_one_at_the_top() -> None:
    body = (
        b'\xef\xbb\xbf { "messages" : [ {"model": "nested \\" , \\"model\\": 1"} ] ,\n "mod\\u0065l" : "top" , "x": 1'
    )
    reader = RequestReader()

    enough = reader.feed(body)

    assert (enough, reader.model) == (True, "top")


def test_reports_when_there_is_no_model_to_wait_for() -> None:
    for body in (b"{}", b"[]", b"not json", b'{"model": 5}', b'{"model": ""}', b"--boundary\r\n", b"\xff\xfe{\x00"):
        reader = RequestReader()
        assert (body, reader.feed(body), reader.model) == (body, True, None)


def test_waits_while_the_model_may_still_come() -> None:
    reader = RequestReader()

    assert [reader.feed(part) for part in (b"", b" ", b'{"messages": ["', b'a"], "mo', b'del": "m', b'"')] == [
        False, False, False, False, False, True,
    ]  # fmt: skip
    assert reader.model == "m"


def test_tokens_are_the_body_and_the_longest_response() -> None:
    for body, limit in (
        (b'{"model": "m", "max_tokens": 100}', 100),
        (b'{"model": "m", "max_output_tokens": 7}', 7),
        (b'{"model": "m", "max_completion_tokens": 9}', 9),
        (b'{"generationConfig": {"maxOutputTokens": 40, "x": {}}}', 40),
        (b'{"model": "m", "max_tokens": null}', 0),
        (b'{"model": "m", "max_tokens": -4}', 0),
        (b'{"model": "m", "max_tokens": "many"}', 0),
        (b'{"model": "m", "max_tokens": true}', 0),
    ):
        reader = RequestReader()
        reader.feed(body)
        assert (body, reader.tokens()) == (body, limit + len(body) // 4)
        assert reader.tokens(4000) == limit + 1000
