"""The rules of a client's key for the body of a model call: its model, the models it may fall back to, and its price.

Here: what the whole body must say before the call begins. Never here: what a key has spent (`key_budgets.py`), and
calls with a token, whose bodies are not read to their end.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from paceline.gateway.call_book import kept_model
from paceline.gateway.client_keys import check_model
from paceline.gateway.errors import GatewayError
from paceline.gateway.request_access import UpstreamRequest
from paceline.gateway.request_body import KEPT_BYTES, RequestBody
from paceline.protocols.families import home_family
from paceline.store import ClientKey

IsPriced = Callable[[str], bool]

_FALLBACKS = frozenset({"models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "route"})
"""Members in which OpenRouter and LiteLLM accept further models."""
_READ = _FALLBACKS | {"model", "background"}
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_MODELS = frozenset({"fallback", "sort"})
"""Values of OpenRouter's `route`."""
_LATER_ANSWERS = (b"/responses", b"/interactions")
"""Calls that can answer in the background: the tokens are then in another answer, which takes no slot."""


async def check_call(
    key: ClientKey, request: UpstreamRequest, body: RequestBody, model: str | None, is_priced: IsPriced
) -> None:
    """Raise `GatewayError` unless the key, which has `body_rules`, allows the call. Reads the whole body."""
    account, rules = request.route.account, body_rules(key, request.route.path)

    def check(name: str | None) -> None:
        check_model(key, account.provider, name)
        check_price(key, name, is_priced)

    check(model)
    if request.route.model is not None and home_family(account.provider) == "gemini":
        return  # Google reads the model in the path and knows none of the other members
    members = _members(key, rules, await _whole(key, rules, body))
    if (key.budget is not None or key.tpm is not None) and _is_set(members, "background"):
        rule = "a limit of tokens" if key.budget is None else "a budget"
        message = f"the key {key.name} has {rule}, so `background` must be false: the tokens would not be counted"
        raise GatewayError(403, "background_not_allowed", message)
    if key.models or key.budget is not None:
        if request.route.model is None:
            _check_same_model(key, members, model)
        for name in _further_models(members):
            if not isinstance(name, str):
                message = f"the key {key.name} has {rules}, and the body has a fallback that is no name of a model"
                raise GatewayError(403, "model_not_allowed", message)
            check(name)


def check_price(key: ClientKey, model: str | None, is_priced: IsPriced) -> None:
    """Raise `GatewayError` if the key has a budget and nobody knows what the model costs."""
    if key.budget is None or (model is not None and is_priced(model)):
        return
    if model is None:
        message = f"the key {key.name} has a budget, so each call must name a model that has a price"
    else:
        message = f"the model {model!r:.80} has no price, and the key {key.name} has a budget; add it to [prices]"
    raise GatewayError(403, "model_not_priced", message)


def body_rules(key: ClientKey, path: bytes) -> str:
    """Return which rules of the key concern the body of a call, in words; empty if there are none."""
    if key.models:
        return "models"
    if key.budget is not None:
        return "a budget"
    return "a limit of tokens" if key.tpm is not None and path.rstrip(b"/").endswith(_LATER_ANSWERS) else ""


async def _whole(key: ClientKey, rules: str, body: RequestBody) -> bytes:
    while not body.is_complete:
        if body.size >= KEPT_BYTES:
            message = f"the key {key.name} has {rules}, so a body may have {KEPT_BYTES:,} bytes"
            raise GatewayError(413, "body_too_large", message)
        await body.more()
    return b"".join(body.pieces)


def _members(key: ClientKey, rules: str, body: bytes) -> list[tuple[str, object]]:
    """Return the members that matter, names in lower case: some servers do not distinguish it.

    A body that cannot be read is refused. A server that is less strict may find another model in it.
    """
    try:
        raw = _OBJECT.decode(body)
        body.decode()  # the decoder does not look into strings that it skips
        return [(low, msgspec.json.decode(value)) for name, value in raw.items() if (low := name.lower()) in _READ]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"the key {key.name} has {rules}, so the body must be a JSON object: {error}"
        raise GatewayError(400, "invalid_body", message) from None


def _is_set(members: list[tuple[str, object]], wanted: str) -> bool:
    return any(name == wanted and value not in (False, None) for name, value in members)


def _check_same_model(key: ClientKey, members: list[tuple[str, object]], model: str | None) -> None:
    """Raise `GatewayError` if a body names two models: the provider may take the one that was not checked."""
    for name, value in members:
        last = kept_model(value) if isinstance(value, str) else value
        if name == "model" and last != model:
            message = f"the body names two models, {model!r:.80} and {last!r:.80}; the key {key.name} allows one"
            raise GatewayError(403, "model_not_allowed", message)


def _further_models(members: list[tuple[str, object]]) -> Iterator[object]:
    for name, value in members:
        is_way = name == "route" and isinstance(value, str) and value in _NO_MODELS
        if name in _FALLBACKS and not is_way:
            yield from _names(value)


def _names(value: object) -> Iterator[object]:
    """Yield the names in a list of fallbacks: names, `{"model": NAME, ...}` or `{NAME: [NAME, ...]}`."""
    if isinstance(value, list):
        for each in value:
            yield from _names(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name == "model" or "model" not in value or isinstance(each, list | Mapping):
                yield from _names(each)
    elif value is not None:
        yield value
