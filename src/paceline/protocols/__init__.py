"""PURE: what the protocols of LLM APIs look like on the wire. No I/O, no asyncio, no clock.

    families    which protocol a request speaks, its model in the URL, its scope
    keys        where a key stands, and what is a login and no key
    members     chosen members of a JSON document, while it passes by
    calls       the model and the tokens a request asks for
    answers     the signals of an answer; whether to send again
    usage       the tokens an answer has used
    errors      errors as the provider would write them

The gateway and `paceline.integrations` carry requests by these; neither decides any of it itself.
"""

from paceline.protocols.errors import (
    OwnAnswer,
    answer_when_held,
    answer_when_out_of_time,
    error_body,
    error_headers,
)
from paceline.protocols.families import Family, detect_name, family_of, is_counted, model_in_path, scope_of
from paceline.protocols.keys import PresentedKey, key_place, login_refusal, presented_key, with_key
from paceline.protocols.request_reader import CallReader
from paceline.protocols.responses import (
    earliest_retry,
    may_send_again,
    signals_at_end,
    signals_of,
    signals_of_broken,
    with_pause,
)
from paceline.protocols.usage import AnswerReader, answer_reader

__all__ = [
    "AnswerReader",
    "CallReader",
    "Family",
    "OwnAnswer",
    "PresentedKey",
    "answer_reader",
    "answer_when_held",
    "answer_when_out_of_time",
    "detect_name",
    "earliest_retry",
    "error_body",
    "error_headers",
    "family_of",
    "is_counted",
    "key_place",
    "login_refusal",
    "may_send_again",
    "model_in_path",
    "presented_key",
    "scope_of",
    "signals_at_end",
    "signals_of",
    "signals_of_broken",
    "with_key",
    "with_pause",
]
