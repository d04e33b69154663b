"""Scopes that have another name since: what was learnt is kept, under the new name."""

from paceline.core import Governor, GovernorSettings, Ticket
from paceline.core.signals import AuthFailed, PlatformLimit, QuotaClosed

NOW = 1000.0
MOVED = GovernorSettings(moved_scopes={"agent:claude": "anthropic/default", "openai/default": "openai/work"})


def restored(governor: Governor) -> Governor:
    return Governor.restore(governor.snapshot(), now=NOW, settings=MOVED, keep_slots=False)


def test_what_was_learnt_about_an_agent_is_known_of_its_login() -> None:
    before = Governor(now=NOW)
    before.set_limit("agent:claude", 3, now=NOW)
    before.report("agent:claude", QuotaClosed(resets_at=NOW + 600.0, window="5h", confidence=1.0), now=NOW)

    after = restored(before)

    login, agent = after.status("anthropic/default", now=NOW), after.status("agent:claude", now=NOW)
    assert login is not None
    assert agent is not None
    assert [(window.name, window.state, window.resets_at) for window in login.windows] == [
        ("5h", "closed", NOW + 600.0)
    ]
    assert (agent.windows, agent.limit, login.limit) == ((), 3, None)


def test_an_account_that_is_the_same_login_takes_over_with_its_models() -> None:
    before = Governor(now=NOW)
    before.set_limit("openai/default", 2, now=NOW)
    before.request(Ticket(id="t", scopes=("openai", "openai/default", "openai/default/gpt-5")), now=NOW)
    before.report("openai/default/gpt-5", PlatformLimit(limit=1, in_use=1), now=NOW)

    after = restored(before)

    account, model = after.status("openai/work", now=NOW), after.status("openai/work/gpt-5", now=NOW)
    assert account is not None
    assert model is not None
    assert (account.configured, model.platform) == (2, 1)
    assert after.status("openai/default", now=NOW) is None


def test_what_the_present_name_knows_itself_wins() -> None:
    before = Governor(now=NOW)
    before.report("agent:claude", QuotaClosed(resets_at=NOW + 600.0, window="5h", confidence=1.0), now=NOW)
    before.report("anthropic/default", QuotaClosed(resets_at=NOW + 900.0, window="5h", confidence=1.0), now=NOW)

    status = restored(before).status("anthropic/default", now=NOW)

    assert status is not None
    assert [window.resets_at for window in status.windows] == [NOW + 900.0]


def test_restoring_again_changes_nothing() -> None:
    before = Governor(now=NOW)
    before.report("agent:claude", AuthFailed(detail="expired"), now=NOW)
    once = restored(before)

    assert restored(once).snapshot() == once.snapshot()
