"""PURE: what the protocols of LLM APIs look like on the wire. No I/O, no asyncio, no clock.

    families        the protocol of a request, the model in its URL, its scope; where a key is, and which keys are
                    logins of a subscription; errors in the shape of the provider
    request_reader  the model and the tokens that a request asks for, found while its body passes
    responses       the signals in a response, and whether to retry
    usage           the tokens that a response has used

The names here are those of every module but `responses`: it needs all of detection, which is slow to import.

The gateway and `paceline.integrations` forward requests; what a request or a response means is decided here.
"""

from paceline.protocols.families import (
    Family,
    OwnError,
    PresentedKey,
    detect_name,
    error_body,
    error_headers,
    family_of,
    is_model_use,
    key_position,
    login_refusal,
    model_in_path,
    presented_keys,
    response_when_held,
    response_when_timed_out,
    scope_of,
    takes_slot,
    with_key,
)
from paceline.protocols.request_reader import RequestReader
from paceline.protocols.usage import ResponseReader, TokensUsed, response_reader, tokens_by_bytes, tokens_used

__all__ = [
    "Family",
    "OwnError",
    "PresentedKey",
    "RequestReader",
    "ResponseReader",
    "TokensUsed",
    "detect_name",
    "error_body",
    "error_headers",
    "family_of",
    "is_model_use",
    "key_position",
    "login_refusal",
    "model_in_path",
    "presented_keys",
    "response_reader",
    "response_when_held",
    "response_when_timed_out",
    "scope_of",
    "takes_slot",
    "tokens_by_bytes",
    "tokens_used",
    "with_key",
]
