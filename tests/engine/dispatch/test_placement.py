"""Where sessions may start: on every host that can and that the plan allows. Each of the others has a reason."""

import msgspec
import pytest

from paceline.agents.account import Account
from paceline.core import Deferred
from paceline.engine.dispatch.placement import EXCLUDED_SECONDS, Exclusions, Placement
from paceline.engine.settings import CampaignAccounts
from paceline.hosts.messages import HostCli, HostFacts, HostLoad, HostState, Login
from paceline.settings import HostSettings, MachineTable
from paceline.store import Campaign

NOW = 1_794_705_600.0
GB = 10**9
LOGIN = Account(name="default", provider="anthropic", kind="subscription", is_implicit=True)
ACCOUNTS = CampaignAccounts(
    {name: Account(name=name, provider="anthropic", kind="subscription") for name in ("max-1", "max-2")},
    {"claude": LOGIN},
)
CLAUDE = Campaign(name="night", agent="claude", accounts=("max-1",))
COMMAND = Campaign(name="build", command=("make",))


def facts(
    *logins: str, labels: tuple[str, ...] = (), cli: str | None = "2.1.0", problem: str | None = None
) -> HostFacts:
    return HostFacts(
        version="1",
        machine="m",
        hostname="h",
        home="/w",
        user_home="/home/ada",
        cpus=8,
        memory=16 * GB,
        labels=labels,
        logins=tuple(Login(account=each, problem=problem) for each in logins),
        clis=(HostCli(agent="claude", version=cli),),
    )


def host(name: str = "box1", **fields: object) -> HostState:
    settings = {"max_sessions", "labels", "min_free_memory"} & fields.keys()
    own = HostSettings(name=name, **{key: fields.pop(key) for key in settings})  # type: ignore[arg-type]
    defaults = {"name": name, "settings": own, "presence": "joined", "facts": facts("max-1"), "heard_at": NOW}
    return msgspec.convert(defaults | fields, HostState)


def places(
    campaign: Campaign, *hosts: HostState, machine: MachineTable | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the logins as text, and the reason and the sentence of each refusal."""
    found = Placement(ACCOUNTS, hosts, now=NOW, machine=machine).places(campaign)
    logins = [f"{account}@{where or 'local'}" for account, where in found.logins]
    return logins, {where or "local": f"{each.reason}: {each.detail}" for where, each in found.refusals.items()}


def test_without_hosts_every_account_of_a_campaign_is_on_the_machine_of_the_engine() -> None:
    both = msgspec.structs.replace(CLAUDE, accounts=("max-1", "max-2"))

    assert places(both) == (["max-1@local", "max-2@local"], {})
    assert places(COMMAND) == (["@local"], {})


def test_a_campaign_runs_on_every_host_that_has_a_login_of_its_account() -> None:
    hosts = (host("box1"), host("box2", facts=facts("max-1", "max-2")), host("box3", facts=facts("max-2")))

    logins, refusals = places(CLAUDE, *hosts)

    assert logins == ["max-1@local", "max-1@box1", "max-1@box2"]
    assert refusals == {"box3": "held: box3 has no login of max-1: log in there, or see `paceline doctor --host box3`"}


def test_a_command_without_an_account_needs_neither_a_login_nor_a_cli() -> None:
    assert places(COMMAND, host(facts=facts(cli=None))) == (["@local", "@box1"], {})


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        (
            host(presence="absent", facts=None),
            "unreachable: box1 has no worker: start it there with `paceline worker`, or see `paceline hosts`",
        ),
        (
            host(presence="silent", heard_at=NOW - 90.0),
            "unreachable: box1 has not answered for 90 s, and its sessions may still run: see `paceline hosts`",
        ),
        (
            host(presence="lost", heard_at=NOW - 1200.0),
            "unreachable: box1 has not answered for 20 min, and its sessions have ended: see `paceline hosts`",
        ),
        (host(presence="leaving"), "unreachable: box1 is leaving: its worker ends and takes nothing new"),
        (
            host(load=HostLoad(leaves_at=NOW + 60.0)),
            "unreachable: box1 leaves in 60 s, when its allocation ends: it takes nothing new",
        ),
        (host(facts=None), "unreachable: box1 has joined, and has not yet reported what it has"),
        (
            host(facts=msgspec.structs.replace(facts("max-1"), clis=())),
            "unreachable: box1 has joined, and has not yet reported which agent CLIs it has",
        ),
        (
            host(facts=facts("max-1", cli=None)),
            "held: box1 has no claude that answers: install it there, then `paceline doctor --host box1`",
        ),
        (
            host(facts=facts("max-1", problem="the login has expired")),
            "held: box1 cannot use max-1: the login has expired",
        ),
        (
            host(load=HostLoad(free_memory=GB), min_free_memory=2 * GB),
            "machine: box1 has 1.0 GB of free memory, and min_free_memory in [hosts.box1] keeps 2.0 GB: "
            "free some, or lower it",
        ),
        (host(load=HostLoad(free_disk=10**8)), "machine: box1 has 0.1 GB left on its disk: make room there"),
    ],
)
def test_a_host_that_cannot_take_a_campaign_says_why_and_what_helps(state: HostState, refusal: str) -> None:
    assert places(CLAUDE, state) == (["max-1@local"], {"box1": refusal})


def test_a_host_that_leaves_later_takes_new_sessions() -> None:
    assert places(CLAUDE, host(load=HostLoad(leaves_at=NOW + 3600.0)))[0] == ["max-1@local", "max-1@box1"]


def test_the_floor_of_memory_of_the_machine_table_holds_where_a_host_has_none() -> None:
    machine = MachineTable(min_free_memory=2 * GB, max_load=4.0)
    low, own = HostLoad(free_memory=GB, load=50.0), HostLoad(free_memory=3 * GB, load=4.5)

    logins, refusals = places(
        CLAUDE,
        host(load=low),
        host("box2", load=low, min_free_memory=GB // 2),
        host("local", load=own),
        machine=machine,
    )

    assert logins == ["max-1@box2"]
    assert refusals == {
        "local": "machine: the load of local is 4.5, above max_load = 4 in [machine]",
        "box1": "machine: box1 has 1.0 GB of free memory, and min_free_memory in [machine] keeps 2.0 GB: "
        "free some, or lower it",
    }


def test_a_plan_that_names_hosts_never_falls_back_to_the_machine_of_the_engine() -> None:
    gone = host("gpu-2", presence="lost", heard_at=NOW - 60.0)
    plan = msgspec.structs.replace(CLAUDE, hosts=("gpu*",))

    logins, refusals = places(plan, host("gpu-1"), host("box1"), gone)

    assert logins == ["max-1@gpu-1"]
    assert refusals == {
        "local": "held: the plan names other hosts (gpu*), not local",
        "box1": "held: the plan names other hosts (gpu*), not box1",
        "gpu-2": "unreachable: gpu-2 has not answered for 60 s, and its sessions have ended: see `paceline hosts`",
    }


def test_a_host_needs_all_labels_of_the_plan() -> None:
    plan = msgspec.structs.replace(CLAUDE, labels=("gpu", "big"))
    hosts = (
        host("box1", labels=("gpu",)),
        host("box2", labels=("gpu",), facts=facts("max-1", labels=("big",))),
        host("local", labels=("gpu", "big")),
    )

    logins, refusals = places(plan, *hosts)

    assert logins == ["max-1@local", "max-1@box2"]
    assert refusals == {"box1": "held: box1 lacks the label big: add it to [hosts.box1], or change the plan"}


def test_no_session_starts_on_the_machine_of_the_engine_if_its_settings_say_so() -> None:
    logins, refusals = places(CLAUDE, host("local", max_sessions=0, facts=None), host("box1"))

    assert logins == ["max-1@box1"]
    assert refusals == {"local": "held: local takes no sessions: max_sessions is 0 in [hosts.local]"}


def test_a_campaign_keeps_away_from_a_host_without_its_folder_for_ten_minutes() -> None:
    exclusions: Exclusions = {}
    reason = "cannot work in '/srv/app': No such file or directory"
    exclusions["night", "box1"] = (NOW + EXCLUDED_SECONDS, reason)

    def refusals(campaign: Campaign, at: float) -> dict[str, Deferred]:
        return Placement(ACCOUNTS, [host()], now=at, exclusions=exclusions).places(campaign).refusals

    assert refusals(CLAUDE, NOW + 599.0) == {
        "box1": Deferred(
            "",
            "held",
            "host:box1",
            "a session could not start on box1: cannot work in '/srv/app': No such file or directory; "
            "put it right there, or name other hosts in the plan",
            NOW + EXCLUDED_SECONDS,
        )
    }
    assert refusals(msgspec.structs.replace(CLAUDE, name="day"), NOW) == {}
    assert refusals(CLAUDE, NOW + 600.0) == {}


def test_what_never_fits_is_told_only_if_nothing_fits_or_the_plan_names_the_host() -> None:
    hosts = [host("box1", facts=facts("max-2")), host("box2", presence="absent", facts=None), host("box3")]

    def shown(campaign: Campaign, *states: HostState) -> list[str]:
        return list(Placement(ACCOUNTS, states, now=NOW).places(campaign).shown(campaign))

    assert shown(CLAUDE, *hosts) == ["box2"]
    assert shown(msgspec.structs.replace(CLAUDE, hosts=("box1", "box3")), *hosts) == ["box1"]
    assert shown(msgspec.structs.replace(CLAUDE, hosts=("box1",)), *hosts) == ["box1"]
    assert shown(msgspec.structs.replace(CLAUDE, hosts=("gpu*",)), *hosts) == ["", "box1", "box2", "box3"]


def test_the_cost_of_a_question_follows_the_logins_that_exist() -> None:
    names = [f"max-{n}" for n in range(1000)]
    accounts = CampaignAccounts({each: Account(name=each, provider="anthropic") for each in names}, {})
    hosts = [host(f"box{n}", facts=facts(*names[n::50])) for n in range(50)]
    campaign = msgspec.structs.replace(CLAUDE, accounts=tuple(names), hosts=("box*",))

    found = Placement(accounts, hosts, now=NOW).places(campaign)

    assert len(found.logins) == 1000
    assert list(found.refusals) == [""]
