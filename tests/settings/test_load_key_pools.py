"""Pools of keys in paceline.toml: what they may name, and what a mistake is answered with."""

import pytest

from paceline.errors import InvalidSettings
from paceline.settings import FallbackRoute, KeyPoolSettings

from .conftest import Load

ACCOUNTS = """
[accounts.key-a]
provider = "anthropic"
kind = "metered"
key_env = "KEY_A"
[accounts.key-b]
provider = "anthropic"
kind = "metered"
key_env = "KEY_B"
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.gpt]
provider = "openai"
kind = "metered"
key_env = "KEY_O"
[accounts.router]
provider = "openrouter"
kind = "metered"
key_env = "KEY_R"
base_url = "https://openrouter.ai/api"
"""


def test_a_pool_has_accounts_and_may_have_fallback_routes(load: Load) -> None:
    settings = load(
        ACCOUNTS + '[key_pools.team]\naccounts = ["key-a", "key-b"]\n'
        '[key_pools.gpt-pool]\naccounts = ["gpt"]\n'
        'fallback = [{ account = "router", model = "x/y" }, { account = "gpt" }]\n'
    )

    assert settings.key_pools == {
        "team": KeyPoolSettings(name="team", accounts=("key-a", "key-b")),
        "gpt-pool": KeyPoolSettings(
            name="gpt-pool", accounts=("gpt",), fallback=(FallbackRoute("router", "x/y"), FallbackRoute("gpt"))
        ),
    }
    assert settings.gateway_addresses == ["gpt", "gpt-pool", "key-a", "key-b", "router", "team"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[key_pools.team]\naccounts = ["key-x"]', "there is no account 'key-x'; did you mean \"key-"),
        ('[key_pools.team]\naccounts = ["max-1"]', "max-1 is a subscription, and the gateway takes API keys only"),
        ('[key_pools.team]\naccounts = ["key-a", "gpt"]', "gpt is of the provider openai, and key-a of anthropic"),
        ("[key_pools.team]\naccounts = []", "must be a list of accounts with at least one"),
        ('[key_pools.team]\naccounts = ["key-a", "key-a"]', "names 'key-a' twice; remove one"),
        ('[key_pools.team]\naccounts = "key-a"', "must be a list of accounts"),
        ("[key_pools.team]", 'key_pools.team needs accounts, such as accounts = ["key-a", "key-b"]'),
        ('[key_pools.key-b]\naccounts = ["key-a"]', "key_pools.key-b has the name of an account"),
        ('[key_pools."a/b"]\naccounts = ["key-a"]', "'a/b' cannot name a pool"),
        ('[key_pools.team]\naccounts = ["key-a"]\nfallbacks = []', "fallback"),
        ('[key_pools.team]\naccounts = ["key-a"]\nfallback = ["gpt"]', "must be a list of routes with an account"),
        ('[key_pools.team]\naccounts = ["key-a"]\nfallback = [{ account = "nobody" }]', "there is no account 'nobody'"),
        (
            '[key_pools.team]\naccounts = ["key-a"]\nfallback = [{ account = "gpt" }]',
            "gpt speaks the protocol openai, and key-a speaks anthropic",
        ),
        ('[key_pools.team]\naccounts = ["key-a"]\nfallback = [{ account = "key-b", model = "" }]', "as text"),
    ],
)
def test_a_mistake_in_a_pool_names_the_value_and_the_fix(table: str, said: str, load: Load) -> None:
    with pytest.raises(InvalidSettings) as raised:
        load(f"{ACCOUNTS}{table}\n")

    assert said in str(raised.value)
    assert str(raised.value).count("paceline.toml") == 1


def test_an_account_with_a_mistake_of_its_own_is_reported_once(load: Load) -> None:
    with pytest.raises(InvalidSettings) as raised:
        load('[accounts.key-a]\nkind = "metered"\n[key_pools.team]\naccounts = ["key-a"]\n')

    assert "key_pools" not in str(raised.value)
