"""Settings: what is read, what wins, and what is refused with its place."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paceline.agents.account import Account
from paceline.core.state.tables import LimitTable
from paceline.core.values.settings import Rate
from paceline.errors import InvalidSettings
from paceline.settings import ConfiguredLimit, governor_settings, load_settings
from paceline.settings.environment import OTHERS, SETTINGS

from .conftest import Load, Refused

ACCOUNTS = """
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
env = { CLAUDE_CONFIG_DIR = "~/.claude-max-1" }
reserve = 0.2
[accounts.work-key]
provider = "anthropic"
kind = "metered"
base_url = "https://api.anthropic.com"
key_env = "ANTHROPIC_API_KEY"
"""


# -- defaults and layers ---------------------------------------------------------------------


def test_without_a_file_the_shipped_values_hold(tmp_path: Path) -> None:
    found = load_settings(tmp_path, {"HOME": str(tmp_path)})

    assert found.file is None
    assert (found.limits["sessions"].limit, found.limits["runs"].limit) == (4, 50)
    assert found.limits["anthropic/*/opus-*"] == ConfiguredLimit("anthropic/*/opus-*", 4, "shipped")
    assert found.limits["anthropic/*/sonnet-*"].limit == 24
    assert found.home == tmp_path / ".local/state/paceline"
    assert found.sqlite_path == found.home / "paceline.db"
    assert (found.provider("anthropic").cooldown, governor_settings(found).cooldown) == (None, 0.35)


def test_flags_win_over_variables_and_those_over_the_file(load: Load, tmp_path: Path) -> None:
    text = '[pool]\nsessions = 2\nruns = 3\n[limits]\n"anthropic/*/opus-*" = 5\numans = "none"'
    environ = {"PACELINE_POOL": "8", "PACELINE_LIMITS": "anthropic/*/claude-opus-*=6, x/*=7"}

    found = load(text, environ, {"pool": {"sessions": 9}})

    assert {scope: (each.limit, each.source) for scope, each in found.limits.items()} == {
        "sessions": (9, "flags"),
        "runs": (3, str(tmp_path / "work" / "paceline.toml")),
        "anthropic/*/opus-*": (6, "environment"),
        "anthropic/*/sonnet-*": (24, "shipped"),
        "umans": (None, str(tmp_path / "work" / "paceline.toml")),
        "x/*": (7, "environment"),
    }


def test_the_file_is_searched_upward_and_then_in_the_configuration_folder(tmp_path: Path) -> None:
    deep, config = tmp_path / "a" / "b", tmp_path / "config" / "paceline"
    deep.mkdir(parents=True)
    config.mkdir(parents=True)
    (config / "paceline.toml").write_text("[pool]\nsessions = 1")
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert load_settings(deep, environ).limits["sessions"].limit == 1

    (tmp_path / "a" / "paceline.toml").write_text("[pool]\nsessions = 2")
    assert load_settings(deep, environ).file == tmp_path / "a" / "paceline.toml"

    (tmp_path / "other.toml").write_text("[pool]\nsessions = 3")
    assert load_settings(deep, environ | {"PACELINE_CONFIG": "../../other.toml"}).limits["sessions"].limit == 3


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text("")

    with pytest.raises(InvalidSettings, match=r'there is no file .*; did you mean "paceline.toml"\?'):
        load_settings(tmp_path, {"HOME": "/", "PACELINE_CONFIG": "paceline.tml"})


def test_the_home_folder_follows_its_variable_the_flag_and_xdg(load: Load, tmp_path: Path) -> None:
    assert load("", {"PACELINE_HOME": "~/p"}).home == tmp_path / "home" / "p"
    assert load("", {"XDG_STATE_HOME": "/state"}).home == Path("/state/paceline")
    assert load("", {"XDG_STATE_HOME": "relative"}).home == tmp_path / "home/.local/state/paceline"


def test_every_table_is_read(load: Load, tmp_path: Path) -> None:
    text = (
        ACCOUNTS
        + """
[providers.anthropic]
cooldown = "1s"
headroom = "one-way"
usage_url = "https://example.com/usage"
[engine]
heartbeat = "2s"
lease = 90
max_attempts = 5
strategy = "spread"
[store]
url = "sqlite:///data/my.db"
[agents.mine]
provider = "codex"
stream = "text"
start = ["mine", "{prompt}", "{model_arguments}"]
model = ["-m", "{model}"]
"""
    )

    found = load(text)

    account = found.accounts["max-1"]
    assert (account.scope, account.kind, account.reserve) == ("anthropic/max-1", "subscription", 0.2)
    assert account.env == {"CLAUDE_CONFIG_DIR": str(tmp_path / "home/.claude-max-1")}
    assert found.accounts["work-key"].key_env == "ANTHROPIC_API_KEY"
    assert (found.engine.heartbeat, found.engine.lease, found.engine.strategy) == (2.0, 90.0, "spread")
    assert found.sqlite_path == tmp_path / "work/data/my.db"
    assert found.agent("mine").command_line("hi", model="m") == ["mine", "hi", "-m", "m"]
    assert found.agent("claude").name == "claude"
    assert "mine" in found.agent_names()
    governor = governor_settings(found)
    assert governor.cooldowns == {"anthropic": 1.0}
    assert (governor.cooldown, governor.headrooms, governor.usage_scopes) == (
        0.35,
        {"anthropic": "one-way"},
        ("anthropic",),
    )
    assert LimitTable(governor.limits, {}).configured("anthropic/max-1/opus-4-6") == 4


def test_each_provider_has_a_headroom_of_its_own(load: Load) -> None:
    found = load(ACCOUNTS + '[providers.openai]\nheadroom = "off"')

    assert governor_settings(found).headrooms["openai"] == "off"


@pytest.mark.parametrize(
    ("provider", "without_cooldown"),
    [
        ("", ("anthropic/work-key",)),
        ('[providers.anthropic]\nheadroom = "one-way"', ()),
        ('[providers.anthropic]\nusage_url = "https://example.com/usage"', ()),
    ],
)
def test_a_metered_key_has_no_cooldown_where_refusals_alone_teach_the_lag(
    provider: str, without_cooldown: tuple[str, ...], load: Load
) -> None:
    assert governor_settings(load(ACCOUNTS + provider)).lag_learnt == without_cooldown


def test_a_cooldown_may_be_left_to_be_learnt(load: Load) -> None:
    found = load('[providers.anthropic]\ncooldown = "auto"')

    assert governor_settings(found).cooldowns == {"anthropic": "auto"}


def test_variables_follow_the_tables_and_an_empty_one_counts_as_unset(load: Load) -> None:
    environ = {
        "PACELINE_ENGINE_HEARTBEAT": "500ms",
        "PACELINE_ENGINE_LEASE": "30",
        "PACELINE_POOL_RUNS": "none",
        "PACELINE_POOL": "",
        "PACELINE_STORE_URL": "postgresql://u:secret@host/db",
    }

    found = load("", environ)

    assert (found.engine.heartbeat, found.engine.lease) == (0.5, 30.0)
    assert (found.limits["runs"].limit, found.limits["sessions"].limit) == (None, 4)
    assert (found.store_url, found.sqlite_path) == ("postgresql://u:secret@host/db", None)


def test_a_store_may_have_several_hosts_and_its_password_stays_out_of_the_file(load: Load) -> None:
    hosts = "db1:5432,db2:5433/fleet?target_session_attrs=read-write"

    assert load(f'[store]\nurl = "postgresql://{hosts}"\n').store_url == f"postgresql://{hosts}"
    with pytest.raises(InvalidSettings, match="password"):
        load(f'[store]\nurl = "postgresql://u:secret@{hosts}"\n')


def test_variables_of_sessions_clients_and_tests_are_accepted(load: Load) -> None:
    load("", dict.fromkeys(OTHERS, "x"))


def test_a_variable_that_an_account_takes_its_key_from_is_accepted(load: Load) -> None:
    text = '[accounts.x]\nprovider = "a"\nkind = "metered"\nkey_env = "PACELINE_MY_KEY"\n'

    assert load(text, {"PACELINE_MY_KEY": "k"}).accounts["x"].key_env == "PACELINE_MY_KEY"


@pytest.mark.parametrize(
    ("name", "meant"),
    {
        "PACELINE_POOL_SESSIONS": "PACELINE_POOL",
        "PACELINE_SESSIONS": "PACELINE_POOL",
        "PACELINE_HEARTBEAT": "PACELINE_ENGINE_HEARTBEAT",
        "PACELINE_STALL": "PACELINE_ENGINE_STALL",
        "PACELINE_PORT": "PACELINE_API_PORT",
        "PACELINE_HOMES": "PACELINE_HOME",
    }.items(),
)
def test_an_unknown_variable_is_refused_with_the_setting_it_resembles(name: str, meant: str, refused: Refused) -> None:
    assert refused("", {name: "1"}) == [f"{name}: no such variable; did you mean {meant}?"]


def test_an_unknown_variable_that_resembles_no_setting_is_refused_with_the_list(refused: Refused) -> None:
    (mistake,) = refused("", {"PACELINE_QQ": "1"})

    assert mistake == f"PACELINE_QQ: no such variable; unset it; the settings are {', '.join(SETTINGS)}"


# -- default logins ----------------------------------------------------------------------------


def test_without_accounts_every_agent_has_its_default_login(load: Load) -> None:
    found = load("")

    implicit = Account(name="default", provider="anthropic", kind="subscription", is_implicit=True)
    assert found.accounts == {}
    assert (found.login("claude"), found.login("command")) == (implicit, None)
    assert found.account("openai/default") == found.login("codex")
    assert (found.account("nobody/default"), found.account("max-1")) == (None, None)


@pytest.mark.parametrize("name", ["default", '"anthropic/default"'])
def test_the_default_login_can_be_configured(name: str, load: Load) -> None:
    found = load(f"[accounts.{name}]\nreserve = 0.2\nexpires = 1970-01-02")

    account = Account(name="default", provider="anthropic", kind="subscription", reserve=0.2, expires=86400.0)
    assert found.accounts == {"anthropic/default": account}
    assert found.login("claude") == account
    assert governor_settings(found).reserves == {"anthropic/default": 0.2}


def test_each_provider_has_a_default_login_to_configure(load: Load) -> None:
    found = load('[accounts."openai/default"]\nkind = "metered"\nkey_env = "KEY"')

    assert found.login("codex") == Account(name="default", provider="openai", kind="metered", key_env="KEY")


@pytest.mark.parametrize("env", ["{}", '{ CLAUDE_CONFIG_DIR = "~/.claude" }', '{ CLAUDE_CONFIG_DIR = "~/.claude/" }'])
def test_an_account_with_the_folder_of_the_default_login_is_the_default_login(env: str, load: Load) -> None:
    found = load(f'[accounts.main]\nprovider = "anthropic"\nkind = "subscription"\nenv = {env}')

    assert found.login("claude") == found.accounts["main"]
    assert found.account("anthropic/default") == found.accounts["main"]
    assert found.campaign_accounts("claude", ()) == [found.accounts["main"]]


def test_limits_and_rates_of_a_default_login_are_those_of_the_account_that_it_is(load: Load) -> None:
    account = '[accounts.main]\nprovider = "anthropic"\nkind = "subscription"\n'
    limits = '[limits]\n"anthropic/default" = 3\n"anthropic/default/opus-4-6" = 2\n"anthropic/main/opus-4-6" = 1\n'
    found = load(f'{account}{limits}[rates."anthropic/default"]\nrpm = 60')

    set_here = {scope: each.limit for scope, each in found.limits.items() if each.source != "shipped"}
    assert set_here == {"anthropic/main": 3, "anthropic/main/opus-4-6": 1}
    assert all(each.scope == scope for scope, each in found.limits.items())
    assert found.rates == {"anthropic/main": Rate(rpm=60)}


def test_an_account_with_a_folder_or_a_key_of_its_own_is_not_the_default_login(load: Load) -> None:
    found = load(ACCOUNTS)

    assert found.login("claude") == Account(name="default", provider="anthropic", kind="subscription", is_implicit=True)


def test_inside_a_session_the_default_login_is_that_of_the_session(load: Load, tmp_path: Path) -> None:
    found = load(ACCOUNTS, {"CLAUDE_CONFIG_DIR": str(tmp_path / "home/.claude-max-1")})

    assert found.login("claude") == found.accounts["max-1"]


# -- LESSONS 9: limits that are none ---------------------------------------------------------


@pytest.mark.parametrize("wrong", ["0", "-1", '"10"', '"abc"', "4.5", "true", "[]", "nan", "1979-05-27", '""', "{}"])
def test_a_limit_that_is_none_is_refused_at_the_file(wrong: str, refused: Refused) -> None:
    assert [
        place.partition(": ")[0] for place in refused(f'[pool]\nsessions = {wrong}\n[limits]\n"a/*" = {wrong}')
    ] == [
        "paceline.toml:2",
        "paceline.toml:4",
    ]


@pytest.mark.parametrize("wrong", ["0", "-1", "abc", "4.5", "nil", "1e3", "٤", "4 4"])
def test_a_limit_that_is_none_is_refused_at_the_variable(wrong: str, refused: Refused) -> None:
    pool, limits = refused("", {"PACELINE_POOL": wrong, "PACELINE_LIMITS": f"a={wrong}"})

    assert pool.startswith("PACELINE_POOL: ")
    assert limits.startswith("PACELINE_LIMITS: limits.a = ")


@pytest.mark.parametrize("wrong", [0, True, "8", 4.5, None])
def test_a_limit_that_is_none_is_refused_at_the_flag(wrong: object, refused: Refused) -> None:
    (mistake,) = refused("", {}, {"pool": {"sessions": wrong}})

    assert mistake.startswith("flags: pool.sessions = ")


# -- mistakes and their places ---------------------------------------------------------------

METERED = '[accounts.x]\nprovider = "a"\nkind = "metered"\n'
PAID = '[accounts.x]\nprovider = "anthropic"\nkind = "subscription"\n'
AGENT = '[agents.x]\nprovider = "x"\n'
MISTAKES = {
    "\n[pool]\nsesions = 4": 'paceline.toml:3: unknown key pool.sesions; did you mean "sessions"?',
    "[pol]\nsessions = 4": 'paceline.toml:1: unknown key pol; did you mean "pool"?',
    "pool = 4": "paceline.toml:1: pool must be a table; write [pool] above its keys",
    "accounts.x = 4": "paceline.toml:1: accounts.x must be a table; write [accounts.x] above its keys",
    "[limits]\nsessions = 4": "paceline.toml:2: limits.sessions = 4: write it as sessions in [pool]",
    '[limits]\n"a b" = 4': 'paceline.toml:2: limits."a b" = 4: scope',
    '[limits]\n"x/*/claude-a*" = 4\n"x/*/a*" = 5': 'paceline.toml:3: limits."x/*/a*" = 5: this is the same scope',
    '[providers.x]\ncooldown = "350"': 'paceline.toml:2: providers.x.cooldown = "350": must be a duration 0 or longer',
    '[providers.x]\nheadroom = "adaptve"': 'paceline.toml:2: providers.x.headroom = "adaptve": must be one of',
    '[providers."a/b"]\ncooldown = 1': "paceline.toml:1: 'a/b' must be the name of a provider",
    '[providers.x]\nusage_url = "ftp://x"': 'paceline.toml:2: providers.x.usage_url = "ftp://x": must be an address',
    '[accounts.x]\nkind = "metered"': 'paceline.toml:1: account "x" needs provider, such as provider = "anthropic"',
    '[accounts.x]\nprovider = "a"': 'paceline.toml:1: account "x" needs kind, such as kind = "subscription"',
    '[accounts."a b"]\nprovider = "a"\nkind = "metered"': "paceline.toml:1: 'a b' cannot name an account",
    '[accounts."a/b"]\nprovider = "a"\nkind = "metered"': "paceline.toml:1: 'a/b' cannot name an account",
    '[accounts."a/default"]\nprovider = "b"': "paceline.toml:1: 'a/default' cannot name an account: remove the slash",
    '[accounts.default]\n[accounts."anthropic/default"]': 'paceline.toml:2: account "anthropic/default" is the same as',
    METERED + "daily_budget = 30": "paceline.toml:4: accounts.x.daily_budget = 30: must be dollars above 0 in quotes",
    METERED + 'daily_budget = "$0"': 'paceline.toml:4: accounts.x.daily_budget = "$0": must be dollars above 0',
    PAID + 'daily_budget = "$3"': "paceline.toml:4: accounts.x.daily_budget counts calls of the gateway, which takes",
    METERED + 'expires = "soon"': 'paceline.toml:4: accounts.x.expires = "soon": must be a day, such as 2027-03-01',
    METERED + "reserve = 1": "paceline.toml:4: accounts.x.reserve = 1: must be a share",
    METERED + "env = { A = 1 }": "paceline.toml:4: accounts.x.env = {...}: A must be text",
    PAID + 'env = { CLAUDE_CODE_USE_BEDROCK = "1" }': "paceline.toml:4: accounts.x.env sets CLAUDE_CODE_USE_BEDROCK",
    "[engine]\nheartbeat = 0": "paceline.toml:2: engine.heartbeat = 0: must be a duration longer than 0",
    '[store]\nurl = "mysql://x/y"': 'paceline.toml:2: store.url = "mysql://x/y": must be sqlite:///PATH or postgresql',
    '[store]\nurl = "sqlite://x"': 'paceline.toml:2: store.url = "sqlite://x": must have three slashes',
    AGENT + 'stream = "xml"\nstart = []': "paceline.toml:3: agents.x: not an agent profile: Invalid enum value 'xml'",
    AGENT + 'stream = "text"\nstart = ["{promt}"]': "paceline.toml:1: agents.x: not an agent profile: `start` has",
    '[agents.x]\nprovidr = "x"': 'paceline.toml:2: unknown key agents.x.providr; did you mean "provider"?',
    '[agents.command]\nprovider = "x"': "paceline.toml:1: 'command' cannot name an agent of your own",
    "a = \n": "paceline.toml:1: not TOML: Invalid value",
    "a = " + "9" * 5000: "paceline.toml: not TOML: Exceeds the limit",
    "a = " + "[" * 3000: "paceline.toml: cannot read this TOML: it is nested too deeply",
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.items(), ids=[expected[:60] for expected in MISTAKES.values()])
def test_a_mistake_is_reported_with_its_place_and_what_would_do(text: str, expected: str, refused: Refused) -> None:
    assert refused(text)[0].startswith(expected)


def test_all_mistakes_of_all_layers_are_reported_at_once(refused: Refused) -> None:
    mistakes = refused("[pool]\nsessions = 0\n[engine]\nlease = 0", {"PACELINE_LIMIT": "a=1"}, {"stor": {}})

    assert [mistake.partition(": ")[0] for mistake in mistakes] == [
        "paceline.toml:2",
        "paceline.toml:4",
        "PACELINE_LIMIT",
        "flags",
    ]
    assert mistakes[2] == "PACELINE_LIMIT: no such variable; did you mean PACELINE_LIMITS?"


def test_a_thousand_mistakes_are_a_screenful(refused: Refused) -> None:
    mistakes = refused("[pool]\n" + "\n".join(f"x{number} = 1" for number in range(1000)))

    assert len(mistakes) == 51
    assert mistakes[-1] == "... and 950 more"


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_bytes(b"[pool]\n# caf\xe9\n")

    with pytest.raises(InvalidSettings, match=r"paceline.toml:2: this is not UTF-8"):
        load_settings(tmp_path, {"HOME": "/"})


# -- secrets ---------------------------------------------------------------------------------

SECRET = "sk-ant-secret"
LEAKS = (
    f'[accounts.x]\nkey_env = "{SECRET}"',
    f'[accounts.x]\nenv = {{ ANTHROPIC_API_KEY = "{SECRET}" }}',
    f'[accounts.x]\nbase_url = "https://u:{SECRET}@x"',
    f'[providers.x]\nusage_url = "ftp://u:{SECRET}@x"',
    f'[store]\nurl = "postgresql://u:{SECRET}@x/y"',
    f'[store]\nurl = "postgresql://x/y?password={SECRET}"',
)


@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_in_the_file_is_refused_and_not_shown(text: str, refused: Refused) -> None:
    mistakes = refused(text)

    assert mistakes
    assert not any(SECRET in mistake for mistake in mistakes)


# -- any input -------------------------------------------------------------------------------


@given(st.text() | st.text("[]=\"'{}\n#.ab1, "))
@example("[accounts]\nx = 1")
@example("limits = []")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_settings_or_refused(load: Load, text: str) -> None:
    with suppress(InvalidSettings):
        load(text.encode(errors="replace").decode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("sessions", "anthropic", "provider", "kind", "env", "cooldown", "url", "lease", "start", "stream", "x")
TABLES = ("pool", "limits", "providers", "accounts", "engine", "store", "agents", "home")
INNER = st.dictionaries(st.sampled_from(KEYS), VALUES | st.dictionaries(st.sampled_from(KEYS), VALUES), max_size=4)


@given(st.dictionaries(st.sampled_from(TABLES), VALUES | INNER, max_size=4))
def test_any_values_are_settings_or_refused(flags: dict[str, object]) -> None:
    with suppress(InvalidSettings):
        load_settings(Path("/nowhere"), {"HOME": "/nowhere"}, flags)


# -- Rates of one's own in paceline.toml: by scope or by account, under the names people know -------


WORK_KEY = """
[accounts.work-key]
provider = "anthropic"
kind = "metered"
"""


def test_rates_stand_by_scope_and_by_account(load: Load) -> None:
    found = load(f'[rates."anthropic/*/claude-opus-*"]\nrpm = 50\ntpm = 40000\n{WORK_KEY}rpm = 200\n')

    assert found.rates == {"anthropic/*/opus-*": Rate(rpm=50, tpm=40000), "anthropic/work-key": Rate(rpm=200)}
    assert governor_settings(found).rates == found.rates


def test_a_key_of_an_account_and_of_its_scope_add_up(load: Load) -> None:
    found = load(f'{WORK_KEY}rpm = 200\n[rates."anthropic/work-key"]\ntpm = 5\n')

    assert found.rates == {"anthropic/work-key": Rate(rpm=200, tpm=5)}


@pytest.mark.parametrize("table", ["[rates.umans]", f"{WORK_KEY}rpm = 3"])
def test_another_name_of_a_limit_is_refused_with_the_right_one(refused: Refused, table: str) -> None:
    (mistake,) = refused(f"{table}\nmax_parallel_requests = 8")

    assert "max_parallel_requests is no setting: write the limit of the scope into [limits]" in mistake


@pytest.mark.parametrize("key", ["rpm", "tpm"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", '"50"', "true", '"none"', "[]", "10000000000"])
@pytest.mark.parametrize("table", ["[rates.umans]", "[accounts.a]"])
def test_a_value_that_is_no_rate_is_refused(refused: Refused, table: str, key: str, value: str) -> None:
    needed = 'provider = "x"\nkind = "metered"\n' if "accounts" in table else ""

    mistakes = refused(f"{table}\n{needed}{key} = {value}")

    assert len(mistakes) == 1
    assert f".{key} = " in mistakes[0]
    assert "must be a whole number from 1" in mistakes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[rates."a//b"]\nrpm = 1', 'rates."a//b"'),
        ("[rates.sessions]\nrpm = 1", "only runs have a rate"),
        ("[rates.umans]\nrps = 1", 'unknown key rates.umans.rps; did you mean "rpm"?'),
        ("[rates]\numans = 5", "rates.umans must be a table"),
        ('[rates.umans]\nrpm = 1\n[rates."umans "]\nrpm = 2', "umans "),
        (f'{WORK_KEY}rpm = 1\n[rates."anthropic/work-key"]\nrpm = 2', "is already set in"),
        ('[rates."a/b/claude-opus-4-6"]\nrpm = 1\n[rates."a/b/opus-4-6"]\nrpm = 1', "is already set in"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(refused: Refused, text: str, said: str) -> None:
    (mistake,) = refused(text)

    assert said in mistake
    assert "paceline.toml:" in mistake


def test_the_gateway_is_for_metered_accounts(load: Load, refused: Refused) -> None:
    assert load(f"{WORK_KEY}via_gateway = true").accounts["work-key"].via_gateway
    (mistake,) = refused('[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\nvia_gateway = true')

    assert "accounts.max-1.via_gateway is for metered accounts" in mistake
