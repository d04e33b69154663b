"""Creating and revoking the keys of clients: what is checked and stored, and the commands that a running engine reads.

CLI and API both call these functions, so they refuse the same input with the same message. A key is stored in one
transaction with its event and with the limits of its scope `key:NAME`.
Never here: who presents a key (`paceline.gateway.request_access`).
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Final, get_args

import msgspec

from paceline.core.values.fields import fields_of
from paceline.core.values.model_patterns import model_pattern
from paceline.core.values.scopes import KEY
from paceline.core.values.validation import check_limit, check_weight
from paceline.engine.command_log import signature
from paceline.errors import InvalidInput, InvalidLimit, UnknownName
from paceline.events import Event
from paceline.settings import Settings
from paceline.settings.checks import LARGEST_BUDGET, did_you_mean
from paceline.store import ClientKey, HashedKey, KeyBudget, Store
from paceline.store.spend import BudgetPeriod, KeyRules

KEY_PREFIX: Final = "pk-paceline-"
RANDOM_BYTES: Final = 32
"""Random bytes of a key: 256 bits, which nobody can guess, so that a plain SHA-256 of them is enough."""
MOST_MODELS: Final = 1000
"""Models that one key may name: more than any provider has."""
HIGHEST_PRIORITY: Final = 9999
"""As `x-paceline-priority` allows."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_BUDGET: Final = re.compile(r"\$\s*([0-9]{1,10}(?:\.[0-9]{1,2})?)(?:/(day|month))?")
_MODEL: Final = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._:@+~/*?-]{0,199}")


class KeyRequest(KeyRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key as a person asks for it. Fields are named as in `paceline keys create`."""

    budget: str | None = None


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key, and its text, which is known only here."""

    record: ClientKey
    text: str


def create_key(store: Store, settings: Settings, request: KeyRequest, *, now: float) -> CreatedKey:
    """Store a key. Raise `InvalidInput`, and change nothing, if a value of it is wrong or its name is taken."""
    record = checked_key(settings, request, now=now)
    text = KEY_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    fields = {**key_fields(record), **signature()}
    with store.together():
        store.create_client_key(record, digest_of_key(text.encode()))
        store.append_events([Event("key.created", now, scope_of_key(record.name), None, fields)])
    return CreatedKey(record=record, text=text)


def revoke_key(store: Store, name: str, *, now: float) -> ClientKey:
    """Let no gateway accept the key any more. Raise `UnknownName` if no key has that name."""
    with store.together():
        present = [each.key.name for each in present_keys(store.client_keys())]
        if name not in present:
            hint = did_you_mean(name, present) or "; `paceline keys list` lists them"
            raise UnknownName(f"there is no key {name!r:.80}{hint}")
        record = store.revoke_client_key(name, now=now)
        store.append_events([Event("key.revoked", now, scope_of_key(name), None, {"name": name, **signature()})])
    return record


def present_keys(keys: Iterable[HashedKey]) -> list[HashedKey]:
    """Return the keys that are not revoked."""
    return [each for each in keys if each.key.revoked_at is None]


def digest_of_key(text: bytes) -> str:
    """Return the SHA-256 of a key. It needs no salt: the text is random and long."""
    return hashlib.sha256(text).hexdigest()


def scope_of_key(name: str) -> str:
    """Return the scope in which the calls of a key are counted."""
    return f"{KEY}{name}"


def key_fields(record: ClientKey) -> dict[str, object]:
    """Return what a key allows, by the names that people see."""
    budget = None if record.budget is None else record.budget.text
    return {**fields_of(KeyRules, record), "models": list(record.models), "budget": budget}


# -- checks --------------------------------------------------------------------------------------


def checked_key(settings: Settings, request: KeyRequest, *, now: float) -> ClientKey:
    """Return the key that was asked for. Raise `InvalidInput` with every value that is wrong."""
    checks: dict[str, Callable[[], object]] = {
        "name": lambda: _checked_name(request.name),
        "pool": lambda: _checked_pool(settings, request.pool),
        "models": lambda: _checked_models(request.models),
        "rpm": lambda: _checked_count("rpm", request.rpm),
        "tpm": lambda: _checked_count("tpm", request.tpm),
        "parallel": lambda: _checked_count("parallel", request.parallel),
        "priority_max": lambda: _checked_priority(request.priority_max),
        "weight": lambda: check_weight(request.weight),
        "budget": lambda: None if request.budget is None else parse_budget(request.budget),
        "all_paths": lambda: _checked_paths(request),
    }
    values, mistakes = {}, []
    for name, check in checks.items():
        try:
            values[name] = check()
        except InvalidInput as error:
            mistakes.append(str(error))
    if mistakes:
        raise InvalidInput("; ".join(mistakes))
    return msgspec.convert(values | {"created_at": now}, ClientKey)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r:.80} cannot name a key: use 1 to 63 letters, digits and . _ -, and begin with a letter or digit"
        )
    return name


def parse_budget(text: str) -> KeyBudget:
    """Return the budget that a person wrote, such as `$50/month`, `$5/day` or `$100`."""
    found = _BUDGET.fullmatch(text.strip().replace(",", ""))
    dollars = 0.0 if found is None else float(found[1])
    if found is None or not 0 < dollars <= LARGEST_BUDGET:
        raise InvalidInput(
            f"budget {text!r:.80} must be dollars above 0 per day, per month or in all: '$5/day', '$50/month' or "
            "'$100' (in single quotes: in double quotes a shell replaces $5)"
        )
    periods: tuple[BudgetPeriod, ...] = get_args(BudgetPeriod)
    return KeyBudget(dollars, next((each for each in periods if each == found[2]), "total"))


def _checked_pool(settings: Settings, pool: str | None) -> str | None:
    if pool is None or pool in settings.gateway_addresses:
        return pool
    raise unknown_address(settings, pool)


def unknown_address(settings: Settings, name: str) -> InvalidInput:
    """Return the error for a name that is no address of the gateway: neither a metered account nor a pool."""
    if any(name in (each.name, each.id) and each.kind != "metered" for each in settings.accounts.values()):
        return InvalidInput(
            f"{name} is a subscription, and the gateway takes API keys only: use the vendor's own CLI through"
            " `paceline run` or `paceline exec`"
        )
    known = settings.gateway_addresses
    listed = ", ".join(known) or "none yet: add an account with key_env to paceline.toml"
    hint = did_you_mean(name, known)
    it = f"{hint} It" if hint else "; it"
    return InvalidInput(f"the gateway has no account or pool {name!r:.80}{it} has: {listed}")


def _checked_count(name: str, value: int | None) -> int | None:
    try:
        return check_limit(value, name)
    except InvalidLimit:
        raise InvalidInput(f"{name} must be a whole number >= 1, or left out for no limit; got {value!r:.80}") from None


def _checked_paths(request: KeyRequest) -> bool:
    given = {"--models": request.models, "--budget": request.budget, "--tpm": request.tpm}
    if request.all_paths and (rules := [name for name, value in given.items() if value]):
        raise InvalidInput(
            f"--all-paths cannot be combined with {' and '.join(rules)}: batches and stored answers would bypass it. "
            "Leave it out, or make a second key"
        )
    return request.all_paths


def _checked_models(models: Sequence[str]) -> tuple[str, ...]:
    if len(models) > MOST_MODELS:
        raise InvalidInput(f"a key may name {MOST_MODELS} models at most; got {len(models)}: use a pattern (opus-*)")
    for model in models:
        if not _MODEL.fullmatch(model):
            raise InvalidInput(f"{model!r:.80} is not the name of a model, or a pattern such as opus-*")
    return tuple(dict.fromkeys(map(model_pattern, models)))


def _checked_priority(priority: int) -> int:
    if type(priority) is not int or not -HIGHEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise InvalidInput(f"priority_max must be a whole number from -9999 to 9999; got {priority!r:.80}")
    return priority
