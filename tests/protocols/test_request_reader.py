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
        (b'{"max_tokens": null, "max_completion_tokens": 9}', 9),
        (b'{"max_tokens": 1, "max_completion_tokens": 9}', 9),
        (b'{"max_tokens": 10, "n": 5}', 50),
        (b'{"max_tokens": 10, "n": 5, "best_of": 8}', 80),
        (b'{"max_tokens": 10, "n": 0}', 10),
        (b'{"max_tokens": 10, "n": null}', 10),
        (b'{"max_tokens": 10, "n": 90000000}', 10_000),
        (b'{"generationConfig": {"maxOutputTokens": 40, "candidateCount": 3}}', 120),
        (b'{"generation_config": {"max_output_tokens": 40, "candidate_count": 3}}', 120),
        (b'{"generationConfig": {"responseSchema": "%b", "maxOutputTokens": 40}}' % (b"s" * 20_000), 40),
        (b'{"model": "m", "max_tokens": null}', 0),
        (b'{"model": "m", "max_tokens": -4}', 0),
        (b'{"model": "m", "max_tokens": "many"}', 0),
        (b'{"model": "m", "max_tokens": true}', 0),
    ):
        reader = RequestReader()
        reader.feed(body)
        assert (body, reader.tokens()) == (body, limit + len(body) // 4)
        assert reader.tokens(4000) == limit + 1000


BRACKETS = b'{"x": [%b], "stream": true, "model": "m", "max_tokens": 7}' % b",".join([b"[]"] * 600_000)


def fed(body: bytes) -> RequestReader:
    """Return a reader of a body that came in two pieces. The first one already has more members than are scanned."""
    reader = RequestReader()
    for piece in (body[:65_536], body[65_536:]):
        reader.feed(piece)
    return reader


def test_a_body_of_many_brackets_is_not_scanned_to_its_end_but_parsed_once_it_is_whole() -> None:
    reader = fed(BRACKETS)
    scanned = (reader.needs_whole, reader.model)

    reader.read_whole(b"\xef\xbb\xbf" + BRACKETS + b"\n")

    assert scanned == (True, None)
    assert (reader.model, reader.is_stream, reader.max_tokens) == ("m", True, 7)


def test_a_body_that_is_too_deep_or_no_object_names_no_model() -> None:
    for body in (b'{"x": ' + b"[" * 100_000, b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b', "model": "m"}'):
        reader = fed(body)
        reader.read_whole(body)
        assert (reader.needs_whole, reader.model) == (True, None)
