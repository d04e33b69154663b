"""Loading of settings: shipped defaults, paceline.toml, PACELINE_* and flags become one checked `Settings`.

Each layer is checked by itself, key by key; later layers win. Rules over several keys (an account needs a provider, an
agent's profile) are checked after the layers are merged. Never here: what a value means to the engine.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar, get_args

import msgspec

from paceline.agents import AgentProfile, check_agent, load_agent
from paceline.agents.account import DEFAULT, Account, login_folder
from paceline.agents.launch import matches_any, metered_variables
from paceline.core.values.scopes import LOCAL, RUNS, SESSIONS, ScopePattern, canonical_model, canonical_scope
from paceline.core.values.settings import HEADROOM_MODES, Rate
from paceline.core.values.validation import LARGEST_LIMIT
from paceline.errors import InvalidInput, InvalidSettings
from paceline.protocols import family_of
from paceline.settings import checks
from paceline.settings.checks import Check, Document, Mistakes, did_you_mean, path_text, read_toml
from paceline.settings.environment import expand_home, find_file, home_folder, read_environment, refuse_unknown
from paceline.settings.host_fields import HOST_FIELDS, MACHINE_FIELDS, host_mistakes
from paceline.settings.model import (
    ApiTable,
    ConfiguredLimit,
    EngineTable,
    FallbackRoute,
    HostSettings,
    KeyPoolSettings,
    MachineTable,
    Price,
    ProviderSettings,
    RetentionTable,
    Settings,
    Strategy,
    shipped_limits,
)

MOST_ATTEMPTS = 1000
"""More is surely a typing error: with the longest back-off it is a week of failures."""
FLAGS = "flags"
_SECOND_LIMIT = "max_parallel_requests"
"""What other tools call a limit."""
DATABASE = "paceline.db"
_SQLITE = "sqlite:///"
_COMMAND = "command"
_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_AT_FIELD = re.compile(r" - at `\$\.(\w+)")
MOST_KEYS: Final = 100
"""Accounts of one pool. Each is checked for a request, and a provider's customer has a few keys."""
_POOL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ROUTE_EXAMPLE = '[{ account = "key-c", model = "claude-haiku-4-5" }]'


def provider_name(value: object) -> str:
    """Check the name of a provider: one part of a scope path."""
    name = checks.scope_check(canonical_scope)(value)
    if "/" in name or ":" in name or name in LOCAL:
        raise InvalidInput("must be the name of a provider, such as anthropic")
    return name


def _account_names(value: object) -> tuple[str, ...]:
    names = checks.text_list(value, 'must be a list of accounts with at least one, such as ["key-a", "key-b"]')
    if len(names) > MOST_KEYS:
        raise InvalidInput(f"must have {MOST_KEYS} accounts at most")
    if twice := [each for number, each in enumerate(names) if each in names[:number]]:
        raise InvalidInput(f"names {twice[0]!r:.80} twice; remove one")
    return names


def _fallback(value: object) -> tuple[FallbackRoute, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"must be a list of routes, such as {_ROUTE_EXAMPLE}")
    return tuple(_route(each) for each in value)


def _route(value: object) -> FallbackRoute:
    if not isinstance(value, Mapping) or not {"account"} <= value.keys() <= {"account", "model"}:
        raise InvalidInput(f"must be a list of routes with an account, and a model if it is another: {_ROUTE_EXAMPLE}")
    account, model = value["account"], value.get("model")
    if not isinstance(account, str) or not (model is None or (isinstance(model, str) and model.strip())):
        raise InvalidInput(f"must name accounts and models as text: {_ROUTE_EXAMPLE}")
    if model is not None and not (model.isprintable() and model.isascii()):
        raise InvalidInput(f"has a model that is not plain text: {model!r:.80}")
    return FallbackRoute(account, model)


_per_minute = checks.whole_number(1, LARGEST_LIMIT)
RATES: Mapping[str, Check] = {"rpm": _per_minute, "tpm": _per_minute}
FIXED_TABLES: Mapping[str, Mapping[str, Check]] = {
    "pool": {"sessions": checks.limit, "runs": checks.limit},
    "engine": {
        "heartbeat": checks.span,
        "lease": checks.span,
        "max_attempts": checks.whole_number(1, MOST_ATTEMPTS),
        "stall": checks.span,
        "strategy": checks.one_of(*get_args(Strategy)),
    },
    "api": {
        "host": checks.text,
        "port": checks.whole_number(0, 65535),
        "hosts": checks.host_names,
        "tls_cert": checks.text,
        "tls_key": checks.text,
        "add_campaigns": checks.truth,
        "drain": checks.duration,
    },
    "retention": {"outputs": checks.span_or_none, "events": checks.span_or_none, "max_disk": checks.disk_size},
    "store": {"url": checks.store_url},
    "machine": MACHINE_FIELDS,
}
NAMED_TABLES: Mapping[str, Mapping[str, Check]] = {
    "providers": {
        "cooldown": checks.cooldown,
        "headroom": checks.one_of(*HEADROOM_MODES),
        "usage_url": checks.web_url,
    },
    "accounts": {
        "provider": provider_name,
        "kind": checks.one_of("subscription", "metered"),
        "env": checks.account_variables,
        "reserve": checks.share,
        "base_url": checks.web_url,
        "key_env": checks.variable_name,
        "via_gateway": checks.truth,
        "daily_budget": checks.budget_dollars,
        "expires": checks.day,
        **RATES,
    },
    "key_pools": {"accounts": _account_names, "fallback": _fallback},
    "rates": RATES,
    "prices": {"input": checks.price, "output": checks.price, "cache_read": checks.price, "cache_write": checks.price},
    "hosts": HOST_FIELDS,
    "agents": {field.name: checks.anything for field in msgspec.structs.fields(AgentProfile)},
}
TABLES = (
    *("pool", "limits", "rates", "providers", "accounts", "engine", "api", "retention", "prices", "store", "agents"),
    *("hosts", "machine", "key_pools"),
)


_Value = TypeVar("_Value")
_Named = TypeVar("_Named", ProviderSettings, Account, AgentProfile, Price, HostSettings)


class _Layers:
    """Checked values by path, and the document of each. A value that is put later replaces an earlier one."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], object] = {}
        self.documents: dict[tuple[str, ...], Document] = {}
        """Of values, and of tables: the first that has the table."""
        self.limits = shipped_limits()

    def put(self, document: Document) -> None:
        for name, value in document.values.items():
            if name not in TABLES:
                document.refuse_key((name,), TABLES)
                continue
            table = document.table((name,), value)
            if name == "limits":
                self._put_limits(document, table)
            elif name in FIXED_TABLES:
                self._put_fields(document, (name,), table, FIXED_TABLES[name])
            else:
                for inner, content in table.items():
                    fields = document.table((name, inner), content)
                    self._put_fields(document, (name, inner), fields, NAMED_TABLES[name])

    def _put_fields(
        self, document: Document, path: tuple[str, ...], values: Mapping[str, object], known: Mapping[str, Check]
    ) -> None:
        self.documents.setdefault(path, document)
        if _SECOND_LIMIT in values and path[0] in ("rates", "accounts"):
            text = f"{path_text((*path, _SECOND_LIMIT))} is no setting: write the limit of the scope into [limits]"
            document.refuse((*path, _SECOND_LIMIT), text)
            values = {key: value for key, value in values.items() if key != _SECOND_LIMIT}
        for key, value in document.fields(path, values, known).items():
            self.values[*path, key] = value
            self.documents[*path, key] = document
            if path == ("pool",):
                self._put_limit(document, key, value)

    def _put_limits(self, document: Document, table: Mapping[str, object]) -> None:
        seen: dict[str, str] = {}
        for text, value in table.items():
            path = ("limits", text)
            try:
                scope = ScopePattern(text).text
                limit = checks.limit(value)
            except InvalidInput as error:
                document.refuse_value(path, value, str(error))
                continue
            if scope in (SESSIONS, RUNS):
                document.refuse_value(path, value, f"write it as {scope} in [pool]")
            elif scope in seen:
                document.refuse_value(path, value, f"this is the same scope as {seen[scope]!r}")
            else:
                seen[scope] = text
                self._put_limit(document, scope, limit)

    def _put_limit(self, document: Document, scope: str, limit: object) -> None:
        assert limit is None or isinstance(limit, int)  # checked by checks.limit
        self.limits[scope] = ConfiguredLimit(scope, limit, document.source)

    def fields(self, *path: str) -> dict[str, object]:
        """Return the keys of one table that were set."""
        return {key[-1]: value for key, value in self.values.items() if key[:-1] == path}

    def names(self, table: str) -> list[str]:
        """Return the names of the tables inside it: accounts, providers, agents."""
        return [path[1] for path in self.documents if len(path) == 2 and path[0] == table]

    def named_variables(self) -> list[str]:
        """Return the variables that accounts take their keys from."""
        return [str(value) for path, value in self.values.items() if path[-1] == "key_env"]

    def written(self, *table: str) -> frozenset[str]:
        """Return the keys that the table has in its document, also those with invalid values."""
        content: object = self.documents[table].values
        for name in table:
            content = content.get(name) if isinstance(content, Mapping) else None
        return frozenset(content) if isinstance(content, Mapping) else frozenset()

    def refuse(self, path: tuple[str, ...], message: str) -> None:
        """Add a mistake at the key, or at its table if that does not have it."""
        known = path if path in self.values else path[:2]
        self.documents[known].refuse(known, message)

    def refuse_each(self, path: tuple[str, ...], mistakes: Iterable[tuple[str, str]]) -> bool:
        """Add the mistakes of a table: the key that each is about, and the message. Return whether there are any."""
        found = list(mistakes)
        for key, message in found:
            self.refuse((*path, key), message)
        return bool(found)


def load_settings(start: Path, environ: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> Settings:
    """Load and check all settings. Raise `InvalidSettings` with every mistake.

    `overrides` are the flags in the form of the file: `{"pool": {"sessions": 8}}`.
    """
    mistakes = Mistakes()
    start = start.absolute()
    layers = _Layers()
    try:
        file, home = find_file(start, environ), home_folder(start, environ)
    except InvalidInput as error:
        raise InvalidSettings(str(error)) from error
    if file is not None and (document := read_toml(file, mistakes)) is not None:
        layers.put(document)
        _refuse_password(layers)
    refuse_unknown(environ, layers.named_variables(), mistakes)
    layers.put(read_environment(environ, mistakes))
    layers.put(Document(FLAGS, overrides or {}, mistakes))
    named = _assemble(layers, "accounts", lambda layers, name: _account(layers, name, environ))
    accounts = _by_id(layers, named)
    settings = Settings(
        home=home,
        file=file,
        providers=_assemble(layers, "providers", _provider),
        accounts=accounts,
        default_logins=_default_logins(accounts, environ),
        agents=_assemble(layers, "agents", _agent),
        rates=_rates(layers, named),
        prices=_assemble(layers, "prices", _price),
        hosts=_assemble(layers, "hosts", _host),
        key_pools=_key_pools(layers, named),
        limits=layers.limits,
        engine=msgspec.convert(layers.fields("engine"), EngineTable),
        api=msgspec.convert(_api(layers, file or start, start, environ), ApiTable),
        retention=msgspec.convert(layers.fields("retention"), RetentionTable),
        machine=msgspec.convert(layers.fields("machine"), MachineTable),
        store_url=_store_url(layers, home, file or start, start, environ),
    )
    mistakes.raise_as(InvalidSettings)
    limits = {scope: msgspec.structs.replace(each, scope=scope) for scope, each in _by_login(settings, settings.limits)}
    return msgspec.structs.replace(settings, limits=limits, rates=dict(_by_login(settings, settings.rates)))


def _by_login(settings: Settings, values: Mapping[str, _Value]) -> Iterator[tuple[str, _Value]]:
    """Yield the values by the scope that their login is counted under. An entry that names that scope itself wins."""
    for scope, value in values.items():
        present = settings.login_scope(scope)
        if present == scope or present not in values:
            yield present, value


def _assemble(layers: _Layers, table: str, make: Callable[[_Layers, str], _Named | None]) -> dict[str, _Named]:
    made = {name: make(layers, name) for name in layers.names(table)}
    return {name: value for name, value in made.items() if value is not None}


def _provider(layers: _Layers, name: str) -> ProviderSettings | None:
    try:
        provider_name(name)
    except InvalidInput as error:
        layers.refuse(("providers", name), f"{name!r:.80} {error}")
        return None
    return msgspec.convert({"name": name, **layers.fields("providers", name)}, ProviderSettings)


def _account(layers: _Layers, name: str, environ: Mapping[str, str]) -> Account | None:
    table = ("accounts", name)
    fields = _default_fields(name) | layers.fields(*table)
    for key, example in (("provider", "anthropic"), ("kind", "subscription")):
        if key not in fields and key not in layers.written(*table):
            layers.refuse(table, f'account "{name}" needs {key}, such as {key} = "{example}"')
    owner, _, own_name = name.rpartition("/")
    try:
        canonical_scope(f"{fields.get('provider', 'p')}/{own_name}")
        if owner and (own_name != DEFAULT or fields.get("provider") != owner):
            raise InvalidInput("remove the slash; only PROVIDER/default has one, with that provider")
    except InvalidInput as error:
        layers.refuse(table, f"{name!r:.80} cannot name an account: {error}")
    if not {"provider", "kind"} <= fields.keys():
        return None
    fields = {key: value for key, value in fields.items() if key not in RATES}
    account = msgspec.convert({"name": own_name, **fields}, Account)
    layers.refuse_each(table, account_mistakes(name, account))
    env = {variable: expand_home(content, environ) for variable, content in account.env.items()}
    return msgspec.structs.replace(account, env=env)


def _default_fields(name: str) -> dict[str, object]:
    """Return what need not be written for a default login: its provider, and that it is a subscription."""
    owner, _, own_name = name.rpartition("/")
    return {"provider": owner or "anthropic", "kind": "subscription"} if own_name == DEFAULT else {}


def _by_id(layers: _Layers, accounts: Mapping[str, Account]) -> dict[str, Account]:
    """Return the accounts by id. `default` and `anthropic/default` are one."""
    found: dict[str, Account] = {}
    for name, account in accounts.items():
        if account.id in found:
            layers.refuse(("accounts", name), f'account "{name}" is the same as "{account.id}"')
        found[account.id] = account
    return found


def _default_logins(accounts: Mapping[str, Account], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the accounts that use the login which a provider's CLI has by itself, so that one login has one limit.

    One that is named `default` is meant; else the first subscription with the same folder.
    """
    found: dict[str, str] = {}
    for account in accounts.values():
        folder = login_folder(account.provider, {**environ, **account.env})
        is_same = account.kind == "subscription" and folder == login_folder(account.provider, environ)
        if account.name == DEFAULT:
            found[account.provider] = account.id
        elif is_same:
            found.setdefault(account.provider, account.id)
    return found


def _price(layers: _Layers, model: str) -> Price | None:
    """Return the price of a model. The cache may be left out: it then costs what other input costs."""
    fields, table = layers.fields("prices", model), ("prices", model)
    prices = layers.documents[table].values["prices"]
    written = prices.get(model) if isinstance(prices, Mapping) else None
    if not isinstance(written, Mapping):  # that was refused already
        return None
    missing = [key for key in ("input", "output") if key not in fields and key not in written]
    if missing:
        example = "{ input = 3.0, output = 15.0 }, in dollars per million tokens"
        layers.refuse(table, f"{path_text(table)} needs {' and '.join(missing)}, such as {example}")
    if not {"input", "output"} <= fields.keys():
        return None
    same = [name for name in layers.names("prices") if canonical_model(name) == canonical_model(model)]
    if same[0] != model:
        layers.refuse(table, f"{path_text(table)} is the same model as {same[0]!r:.80}")
    return msgspec.convert(fields, Price)


def _host(layers: _Layers, name: str) -> HostSettings | None:
    fields = layers.fields("hosts", name)
    has_mistakes = layers.refuse_each(("hosts", name), host_mistakes(name, fields))
    return None if has_mistakes else msgspec.convert({"name": name, **fields}, HostSettings)


def _key_pools(layers: _Layers, accounts: Mapping[str, Account]) -> dict[str, KeyPoolSettings]:
    """Return the pools of keys. `accounts` are those that could be read; a mistake in another one is reported there."""
    pools: dict[str, KeyPoolSettings] = {}
    broken = set(layers.names("accounts")) - accounts.keys()
    for name in layers.names("key_pools"):
        table = ("key_pools", name)
        fields = layers.fields(*table)
        mistakes = key_pool_mistakes(name, fields, accounts, broken, layers.written(*table))
        if not layers.refuse_each(table, mistakes) and "accounts" in fields:
            pools[name] = msgspec.convert({"name": name, **fields}, KeyPoolSettings)
    return pools


def _rates(layers: _Layers, accounts: Mapping[str, Account]) -> dict[str, Rate]:
    """Return rates by scope."""
    tables = {("rates", text): _rate_scope(layers, text) for text in layers.names("rates")}
    tables |= {("accounts", name): account.scope for name, account in accounts.items()}
    rates: dict[str, Rate] = {}
    locations: dict[tuple[str, str], tuple[str, ...]] = {}
    for table, scope in tables.items():
        for key, value in layers.fields(*table).items():
            if key not in RATES or scope is None:
                continue
            assert isinstance(value, int)
            path = (*table, key)
            if (before := locations.setdefault((scope, key), path)) != path:
                layers.refuse(path, f"{path_text(path)} is already set in {path_text(before)}")
            else:
                rates[scope] = msgspec.structs.replace(rates.get(scope, Rate()), **{key: value})
    return rates


def _rate_scope(layers: _Layers, text: str) -> str | None:
    try:
        scope = ScopePattern(text).text
        if scope == SESSIONS:
            raise InvalidInput("only runs have a rate, sessions do not; name the scope of an account or a provider")
    except InvalidInput as error:
        layers.refuse(("rates", text), f"{path_text(('rates', text))}: {error}")
        return None
    return scope


def _agent(layers: _Layers, name: str) -> AgentProfile | None:
    table = ("agents", name)
    fields = layers.fields(*table)
    if name == _COMMAND or fields.get("name", name) != name or not _AGENT_NAME.fullmatch(name):
        layers.refuse(table, f"{name!r:.80} cannot name an agent of your own; choose another name for [agents.NAME]")
        return None
    try:
        return check_agent({**fields, "name": name})
    except InvalidInput as error:
        at = _AT_FIELD.search(str(error))
        layers.refuse((*table, at[1]) if at else table, f"agents.{name}: {error}")
        return None


def _refuse_password(layers: _Layers) -> None:
    """Refuse a password in the file. Called before the environment is read, which may contain one."""
    url = ("store", "url")
    if checks.has_password(str(layers.values.get(url, ""))):
        layers.refuse(url, "store.url contains a password, which must not be in the file; set PACELINE_STORE_URL")


def _api(layers: _Layers, file: Path, start: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the fields of [api], with absolute paths of the certificate and its key."""
    fields = layers.fields("api")
    if "tls_key" in fields and "tls_cert" not in fields:
        layers.refuse(("api", "tls_key"), "api.tls_key is the key of a certificate: set tls_cert too")
    for key in ("tls_cert", "tls_key"):
        if key in fields:
            folder = _folder_of(layers.documents["api", key], file, start)
            fields[key] = str(folder / expand_home(str(fields[key]), environ))
    return fields


def _folder_of(document: Document, file: Path, start: Path) -> Path:
    """Return where a relative path begins: in the folder of the file that names it, else in `start`."""
    return file.parent if document.source == str(file) else start


def _store_url(layers: _Layers, home: Path, file: Path, start: Path, environ: Mapping[str, str]) -> str:
    """Return the URL of the store. A relative SQLite path begins in the folder of the file, else in `start`."""
    if ("store", "url") not in layers.values:
        return f"{_SQLITE}{home / DATABASE}"
    url = str(layers.values["store", "url"])
    if not url.startswith(_SQLITE):
        return url
    folder = _folder_of(layers.documents["store", "url"], file, start)
    return f"{_SQLITE}{folder / expand_home(url.removeprefix(_SQLITE), environ)}"


# -- rules over several fields of an account -------------------------------------------------------


def account_mistakes(name: str, account: Account) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the account: the key that it is about, and the message."""
    if account.kind != "subscription":
        return
    bare = Account(name=account.name, provider=account.provider, kind=account.kind)
    patterns = metered_variables(load_agent("command"), bare)
    if billed := sorted(name for name in account.env if matches_any(name, patterns)):
        yield (
            "env",
            f"accounts.{name}.env sets {', '.join(billed)}, which would be billed instead of the subscription;"
            ' remove it, or set kind = "metered"',
        )
    if account.daily_budget is not None:
        yield (
            "daily_budget",
            f"accounts.{name}.daily_budget counts calls of the gateway, which takes metered accounts only; remove it",
        )
    if account.via_gateway:
        yield (
            "via_gateway",
            f"accounts.{name}.via_gateway is for metered accounts: the gateway takes API keys, and a"
            " subscription is used through the vendor's own CLI; remove it",
        )


# -- rules over a pool of keys and the accounts in it ---------------------------------------------


def key_pool_mistakes(
    name: str,
    fields: Mapping[str, object],
    accounts: Mapping[str, Account],
    broken: Collection[str],
    written: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a pool: the key that it is about, and the message.

    `broken` are accounts with mistakes of their own, and `written` the keys that the table has, valid or not.
    """
    if not _POOL_NAME.fullmatch(name):
        yield "", f"{name!r:.80} cannot name a pool: use letters, digits, dots, dashes and underscores"
    if name in broken or name in (account.name for account in accounts.values()):
        yield "", f"key_pools.{name} has the name of an account, and both are /gateway/{name}/: rename the pool"
    if "accounts" not in written:
        yield "", f'key_pools.{name} needs accounts, such as accounts = ["key-a", "key-b"]'
    members, routes = fields.get("accounts", ()), fields.get("fallback", ())
    assert isinstance(members, tuple)
    assert isinstance(routes, tuple)
    found: list[Account] = []
    for key, member in (*(("accounts", each) for each in members), *(("fallback", each.account) for each in routes)):
        if member in broken:
            continue
        if (message := _member_mistake(member, accounts)) is not None:
            yield key, f"key_pools.{name}.{key}: {message}"
            continue
        account = accounts[member]
        found.append(account)
        if (message := _difference(found[0], account, is_fallback=key == "fallback")) is not None:
            yield key, f"key_pools.{name}.{key}: {message}"


def _member_mistake(member: str, accounts: Mapping[str, Account]) -> str | None:
    account = accounts.get(member)
    if account is None:
        metered = sorted(each.name for each in accounts.values() if each.kind == "metered")
        known = ", ".join(metered) or "none yet"
        hint = did_you_mean(member, metered)
        listed = f"{f'{hint} M' if hint else '; m'}etered accounts are: {known}"
        return f"there is no account {member!r:.80}{listed}. Add [accounts.NAME] first"
    if account.kind == "subscription":
        return f"{member} is a subscription, and the gateway takes API keys only; remove it, or name a metered account"
    return None


def _difference(first: Account, account: Account, *, is_fallback: bool) -> str | None:
    """Return why the account cannot serve the same requests as the first one of the pool."""
    if not is_fallback and account.provider != first.provider:
        return (
            f"{account.name} is of the provider {account.provider}, and {first.name} of {first.provider};"
            f" a pool has one provider: make a second pool, or name {account.name} in fallback"
        )
    own, wanted = family_of(account.provider), family_of(first.provider)
    if own != wanted:
        return (
            f"{account.name} speaks the protocol {own}, and {first.name} speaks {wanted};"
            f" name an account that speaks {wanted}"
        )
    return None
