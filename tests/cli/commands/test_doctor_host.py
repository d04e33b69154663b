"""`doctor --host`: what another machine lacks, and what differs there."""

import msgspec

from paceline.cli.commands.doctor import Finding, host_findings
from paceline.hosts.messages import HostCli, HostFacts, HostState, Login
from paceline.settings import HostSettings
from paceline.views.status import host_views

FACTS = HostFacts(
    version="0.1.0",
    machine="m",
    hostname="rack7",
    home="/srv/paceline",
    user_home="/home/ada",
    cpus=8,
    memory=16_000_000_000,
    logins=(Login(account="max-1"),),
    clis=(HostCli(agent="claude", version="2.1.325", path="/usr/bin/claude"), HostCli(agent="codex")),
    variables={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "git --version": "git version 2.39"},
)


def compare(facts: HostFacts | None, *, presence: str = "joined", is_live: bool = True) -> list[Finding]:
    state = HostState(name="box1", settings=HostSettings(name="box1"), facts=facts)
    state = msgspec.structs.replace(state, presence=presence)
    return list(host_findings(host_views([state])[0], FACTS, is_live=is_live))


def test_a_host_that_has_the_same_has_nothing_to_fix() -> None:
    assert compare(FACTS) == [
        Finding(what="box1", verdict="ok", detail="rack7, /srv/paceline; 8 processors, 16.0 GB of memory"),
        Finding(what="paceline", verdict="ok", detail="0.1.0"),
        Finding(what="claude", verdict="ok", detail="2.1.325 (/usr/bin/claude)"),
        Finding(what="logins", verdict="ok", detail="max-1"),
        Finding(what="the same", verdict="ok", detail="LANG, PATH, git"),
    ]


def test_what_differs_on_a_host_is_named_with_both_values() -> None:
    facts = msgspec.structs.replace(
        FACTS,
        version="0.2.0",
        clis=(HostCli(agent="claude", version="2.1.197", path="/opt/claude"),),
        variables={"PATH": "/bin", "LANG": "de_DE", "git --version": "git version 2.50", "TZ": "Asia/Tokyo"},
    )
    findings = {each.what: (each.verdict, each.detail) for each in compare(facts)}

    assert findings["paceline"] == ("note", "0.2.0 there, 0.1.0 here")
    assert findings["claude"] == ("note", "2.1.197 there, 2.1.325 here")
    assert findings["PATH"] == ("note", "without /usr/bin, which are in it here")
    assert findings["LANG"] == ("note", "de_DE there, C.UTF-8 here")
    assert findings["TZ"] == ("note", "Asia/Tokyo there, not set here")
    assert findings["git"] == ("note", "git version 2.50 there, git version 2.39 here")


def test_what_only_this_machine_has_is_to_be_fixed_on_the_host() -> None:
    facts = msgspec.structs.replace(
        FACTS,
        clis=(HostCli(agent="claude"),),
        logins=(
            Login(account="max-1", problem="account 'max-1' is not logged in: there is no file; run `claude` once"),
        ),
    )
    findings = [each for each in compare(facts) if each.verdict == "wrong"]

    assert findings == [
        Finding(
            what="claude",
            verdict="wrong",
            detail="it is not on the PATH of its worker; 2.1.325 here",
            fix="on box1: npm install -g @anthropic-ai/claude-code",
        ),
        Finding(
            what="max-1",
            verdict="wrong",
            detail="account 'max-1' is not logged in: there is no file",
            fix="on box1: run `claude` once",
        ),
    ]


def test_a_host_without_a_worker_is_to_be_started() -> None:
    assert compare(None, presence="absent") == [
        Finding(
            what="box1",
            verdict="wrong",
            detail="no worker has joined yet; its worker is absent",
            fix="start its worker: `paceline hosts token box1` prints the token that it needs",
        )
    ]


def test_without_a_daemon_nothing_is_known_of_now() -> None:
    assert compare(FACTS, is_live=False)[0].verdict == "note"
