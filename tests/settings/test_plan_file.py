"""Plan files: the campaign and its inline units, what they become, and every mistake with its place."""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import InvalidPlan
from paceline.events import Event
from paceline.settings import Settings, load_settings
from paceline.settings.plan_file import Plan, campaign_with_changes, import_in_steps, read_plan
from paceline.store import Added, Campaign, SqliteStore, UnitCounts, UnitSpec

NOW = 1_800_000_000.0
ACCOUNTS: dict[str, object] = {
    "max-1": {"provider": "anthropic", "kind": "subscription"},
    "max-2": {"provider": "anthropic", "kind": "subscription"},
    "flat": {"provider": "umans", "kind": "metered"},
    "gpt": {"provider": "openai", "kind": "subscription"},
    "gpt-key": {"provider": "openai", "kind": "metered"},
    "moved": {"provider": "openai", "kind": "metered", "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}},
}
HEAD = '[campaign]\nname = "c"\nagent = "claude"\n'
ONE = '[[unit]]\nid = "a"\nprompt = "x"\n'
CALL = '[campaign]\nname = "c"\nagent = "command"\n'

Read = Callable[[str], Plan]


@pytest.fixture
def configured(tmp_path: Path) -> Settings:
    return load_settings(tmp_path, {"HOME": str(tmp_path)}, {"accounts": ACCOUNTS, "engine": {"strategy": "spread"}})


@pytest.fixture
def read(tmp_path: Path, configured: Settings) -> Read:
    def from_text(text: str) -> Plan:
        path = tmp_path / "plan.toml"
        path.write_bytes(text.encode())
        return read_plan(path, configured, now=NOW)

    return from_text


def mistakes_of(read: Read, text: str, folder: Path) -> list[str]:
    with pytest.raises(InvalidPlan) as caught:
        read(text)
    return [mistake.replace(f"{folder}{os.sep}", "") for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("agent", "account"),
    [("opencode", "gpt"), ("qwen", "gpt-key"), ("claude", "flat"), ("claude", "moved"), ("codex", "gpt")],
)
def test_an_account_fits_every_agent_that_can_use_it(read: Read, agent: str, account: str) -> None:
    head = f'[campaign]\nname = "c"\nagent = "{agent}"\naccounts = ["{account}"]\n'
    assert read(head + ONE).campaign.accounts == (account,)


# -- what a plan becomes ---------------------------------------------------------------------


def test_a_whole_plan_is_read(read: Read, tmp_path: Path) -> None:
    (tmp_path / "services" / "a").mkdir(parents=True)
    text = """
[campaign]
name = "docstrings"
priority = 5
max_sessions = 4
strategy = "rush"
deadline = 2100-12-01T08:00:00Z
agent = "claude"
model = "opus-4-6"
accounts = ["max-1", "max-2"]
max_attempts = 2
timeout = "30m"
[[unit]]
id = "a"
prompt = "Grüße 🙂"
cwd = "services/a"
output = "out/a.md"
[[unit]]
id = "b"
prompt = "two"
"""

    plan = read(text)

    assert plan.campaign == Campaign(
        name="docstrings",
        priority=5,
        max_sessions=4,
        strategy="rush",
        deadline=4131331200.0,
        agent="claude",
        model="opus-4-6",
        accounts=("max-1", "max-2"),
        max_attempts=2,
        timeout=1800.0,
    )
    assert plan.units == (
        UnitSpec(id="a", prompt="Grüße 🙂", cwd=f"{tmp_path}/services/a", output=f"{tmp_path}/out/a.md"),
        UnitSpec(id="b", prompt="two", cwd=str(tmp_path)),
    )


def test_the_settings_say_what_the_plan_does_not(read: Read, tmp_path: Path) -> None:
    assert read(HEAD + ONE).campaign.strategy == "spread"
    assert read_plan(tmp_path / "plan.toml").campaign.strategy == "rush"


def test_a_plan_says_what_its_sessions_may_do_and_get(read: Read) -> None:
    keys = """
permissions = "edit"
on_denied = "done"
args = ["--max-turns", "40"]
env = { LANG = "C.UTF-8", NO_PROXY = "localhost" }
env_pass = ["GITHUB_*", "NPM_TOKEN"]
env_strict = true
allow_metered = true
"""

    assert read(HEAD + keys + ONE).campaign == Campaign(
        name="c",
        agent="claude",
        strategy="spread",
        permissions="edit",
        on_denied="done",
        args=("--max-turns", "40"),
        env={"LANG": "C.UTF-8", "NO_PROXY": "localhost"},
        env_pass=("GITHUB_*", "NPM_TOKEN"),
        env_strict=True,
        allow_metered=True,
    )


def test_an_agent_of_the_user_without_flags_for_permissions_refuses_them(tmp_path: Path) -> None:
    agent = {"provider": "x", "stream": "text", "start": ["mine", "{prompt}"]}
    own = load_settings(tmp_path, {"HOME": str(tmp_path)}, {"agents": {"mine": agent}})
    (tmp_path / "plan.toml").write_text('[campaign]\nname = "c"\nagent = "mine"\npermissions = "edit"\n' + ONE)

    with pytest.raises(InvalidPlan, match=r"has no flags for it; remove it, or add \[agents.mine.permissions.edit\]"):
        read_plan(tmp_path / "plan.toml", own)


def test_a_command_says_what_is_run_and_needs_no_prompt(read: Read) -> None:
    command = 'command = ["sh", "-c", "echo {id} {model} ${HOME} {a,b} { print }"]\n'

    plan = read('[campaign]\nname = "c"\n' + command + '[[unit]]\nid = "a"\n')

    assert plan.campaign.agent == "command"
    assert plan.campaign.command[2] == "echo {id} {model} ${HOME} {a,b} { print }"


def test_a_plan_says_where_its_sessions_may_run(read: Read) -> None:
    plan = read(HEAD + 'hosts = ["box1", "gpu*"]\nlabels = ["gpu"]\npatience = "10m"\n' + ONE)

    assert (plan.campaign.hosts, plan.campaign.labels, plan.campaign.patience) == (("box1", "gpu*"), ("gpu",), 600.0)
    assert (read(HEAD + ONE).campaign.hosts, read(HEAD + ONE).campaign.patience) == ((), 1800.0)


def test_the_folder_of_a_unit_need_not_be_here_if_the_plan_runs_elsewhere(read: Read, tmp_path: Path) -> None:
    away = ONE + 'cwd = "/srv/nowhere"\n'

    assert read(HEAD + 'hosts = ["box1"]\n' + away).units[0].cwd == "/srv/nowhere"
    assert read(HEAD + 'labels = ["gpu"]\n' + away).units[0].cwd == "/srv/nowhere"
    assert "there is no folder" in mistakes_of(read, HEAD + 'hosts = ["box1", "local"]\n' + away, tmp_path)[0]


def test_an_agent_of_the_user_is_known(tmp_path: Path) -> None:
    agent = {"provider": "x", "stream": "text", "start": ["mine", "{prompt}"]}
    own = load_settings(tmp_path, {"HOME": str(tmp_path)}, {"agents": {"mine": agent}})
    (tmp_path / "plan.toml").write_text('[campaign]\nname = "c"\nagent = "mine"\n' + ONE)

    assert read_plan(tmp_path / "plan.toml", own).campaign.agent == "mine"


@pytest.mark.parametrize("agent", ["", 'agent = "openclaw"\n', 'agent = "openclaw-gateway"\n'])
def test_openclaw_as_executor_runs_its_sub_agents(agent: str, read: Read) -> None:
    plan = read('[campaign]\nname = "c"\nexecutor = "openclaw"\n' + agent + ONE)

    assert plan.campaign.agent == "openclaw-gateway"


def test_processes_are_the_usual_executor(read: Read) -> None:
    assert read(HEAD + 'executor = "process"\n' + ONE) == read(HEAD + ONE)


def test_a_stored_campaign_of_sub_agents_can_be_changed(read: Read, configured: Settings) -> None:
    campaign = read('[campaign]\nname = "c"\nexecutor = "openclaw"\n' + ONE).campaign

    changed = campaign_with_changes(campaign, {"priority": 3}, configured, now=NOW)

    assert changed == msgspec.structs.replace(campaign, priority=3)


@pytest.mark.parametrize("account", ["flat", "max-1"])
def test_no_plan_needs_a_model_not_even_where_models_have_caps(account: str, read: Read) -> None:
    assert read(HEAD + f'accounts = ["{account}"]\n' + ONE).campaign.model is None


def test_a_campaign_past_its_deadline_can_go_on_when_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(HEAD + "deadline = 2026-01-01T00:00:00Z\n" + ONE)

    assert read_plan(path, now=1_760_000_000.0).campaign.deadline == 1_767_225_600.0
    with pytest.raises(InvalidPlan, match="in the past"):
        read_plan(path, now=1_770_000_000.0, added_at={"another": 1_760_000_000.0})

    late = read_plan(path, now=1_770_000_000.0, added_at={"c": 1_760_000_000.0})
    assert late.campaign.deadline == 1_767_225_600.0


def test_what_is_read_can_be_stored(read: Read) -> None:
    plan = read(HEAD + ONE)

    assert SqliteStore.in_memory().add_campaign(plan.campaign, plan.units, update=False, now=NOW).added == 1


# -- mistakes --------------------------------------------------------------------------------

MISTAKES = {
    "": [
        "plan.toml: the campaign needs a name",
        "plan.toml: the campaign needs an agent",
        "plan.toml: there are no units",
    ],
    HEAD + 'executor = "openclaw"\n' + ONE: [
        'plan.toml:4: campaign.executor = "openclaw": does not run the agent "claude": its gateway runs its own'
        ' sub-agents; write agent = "openclaw", or remove the agent'
    ],
    HEAD + 'executor = "ray"\n' + ONE: ['plan.toml:4: campaign.executor = "ray": must be one of process, openclaw'],
    HEAD + "priorty = 1\n" + ONE: ['plan.toml:4: unknown key campaign.priorty; did you mean "priority"?'],
    HEAD + "[[unti]]\n" + ONE: ['plan.toml:4: unknown key unti; did you mean "unit"?'],
    HEAD + '[unit]\nid = "a"': ["plan.toml:4: write each unit as [[unit]], with two brackets"],
    HEAD + ONE + "mdel = 1": ["plan.toml:7: unknown key unit[1].mdel; there are id, prompt, cwd, output"],
    HEAD + ONE + "\n" + ONE: ['plan.toml:8: unit "a": this id is already used at plan.toml:4'],
    HEAD + '[[unit]]\nprompt = "x"': ["plan.toml:4: unit 1 needs an id"],
    HEAD + "[[unit]]\nid = 7": ["plan.toml:5: unit[1].id = 7: must be text in quotes"],
    HEAD + '[[unit]]\nid = "a"': ['plan.toml:4: unit "a": the prompt is empty or missing'],
    HEAD + '[[unit]]\nid = "a"\nprompt = "x\\u0000"': ['plan.toml:4: unit "a": the prompt has a NUL character'],
    HEAD + ONE + 'cwd = "no"': ['plan.toml:4: unit "a": cwd "no": there is no folder'],
    HEAD + ONE + 'output = "../x"': ['plan.toml:4: unit "a": output "../x" must lie in the plan\'s folder'],
    HEAD + ONE + 'output = "/etc/x"': ['plan.toml:4: unit "a": output "/etc/x" must lie in'],
    HEAD + ONE + 'output = "o"\n[[unit]]\nid = "b"\nprompt = "x"\noutput = "./o"': [
        'plan.toml:8: unit "b": output "./o" is already the output of the unit at plan.toml:4'
    ],
    '[campaign]\nname = "a/b"\nagent = "claude"\n' + ONE: ['plan.toml:2: campaign.name = "a/b": cannot name'],
    '[campaign]\nname = "c"\n' + ONE: ["plan.toml:1: the campaign needs an agent, one of aider, claude"],
    '[campaign]\nname = "c"\nagent = "cluade"\n' + ONE: [
        'plan.toml:3: campaign.agent = "cluade": there is no such agent; did you mean "claude"?'
    ],
    HEAD + 'timeout = "99999d"\n' + ONE: [
        'plan.toml:4: campaign.timeout = "99999d": must be a duration longer than 0, ten years at most'
    ],
    HEAD + "max_sessions = 1000000001\n" + ONE: [
        "plan.toml:4: campaign.max_sessions = 1000000001: must be a whole number from 1 to 1000000000"
    ],
    HEAD + "max_sessions = 0\n" + ONE: [
        "plan.toml:4: campaign.max_sessions = 0: must be a whole number from 1 to 1000000000"
    ],
    HEAD + 'priority = "5"\n' + ONE: ['plan.toml:4: campaign.priority = "5": must be a whole number from -100 to 100'],
    HEAD + 'timeout = "30"\n' + ONE: ['plan.toml:4: campaign.timeout = "30": must be a duration longer than 0'],
    HEAD + "deadline = 2020-01-01T00:00:00Z\n" + ONE: [
        "plan.toml:4: campaign.deadline = 2020-01-01 00:00:00+00:00: is in the past"
    ],
    HEAD + "deadline = 2100-01-01T00:00:00\n" + ONE: [
        "plan.toml:4: campaign.deadline = 2100-01-01 00:00:00: must be a date and time with its zone"
    ],
    HEAD + 'deadline = "soon"\n' + ONE: ['plan.toml:4: campaign.deadline = "soon": must be a date and time'],
    HEAD + 'accounts = "max-1"\n' + ONE: ['plan.toml:4: campaign.accounts = "max-1": must be a list of texts'],
    HEAD + 'model = "opus-4-6"\naccounts = [\n"max-1",\n"mx-2"]\n' + ONE: [
        "plan.toml:5: campaign.accounts = ['max-1', 'mx-2']: there is no account \"mx-2\"; did you mean \"max-2\"?"
    ],
    HEAD + 'accounts = ["flat", "flat"]\n' + ONE: [
        "plan.toml:4: campaign.accounts = ['flat', 'flat']: the same account is named twice"
    ],
    HEAD + 'accounts = ["gpt"]\n' + ONE: [
        "plan.toml:4: campaign.accounts = ['gpt']: \"gpt\" is an account of openai, which claude cannot use;"
        ' set agent = "codex", or name an account of its provider'
    ],
    HEAD + 'accounts = ["max-1", "gpt-key"]\n' + ONE: [
        "plan.toml:4: campaign.accounts = ['max-1', 'gpt-key']: \"gpt-key\" is an account of openai, which claude"
    ],
    HEAD + '[[units]]\nid = "a"\n[[units]]\nid = "b"\n': [
        "plan.toml:4: write each unit as [[unit]], without s; [units] is one table that names a source of units"
    ],
    HEAD + 'model = "a b"\n' + ONE: ['plan.toml:4: campaign.model = "a b": scope'],
    HEAD + 'command = ["x"]\n' + ONE: ["plan.toml:4: campaign.command = ['x']: agent \"claude\" brings its own"],
    CALL + ONE: ['plan.toml:3: campaign.agent = "command": needs a command'],
    CALL + "command = []\n" + ONE: ["plan.toml:4: campaign.command = []: must be a list of texts"],
    CALL + 'command = ["{promt}"]\n' + ONE: [
        "plan.toml:4: campaign.command = ['{promt}']: unknown placeholder {promt}; did you mean \"prompt\"?"
    ],
    HEAD + 'permissions = "write"\n' + ONE: [
        'plan.toml:4: campaign.permissions = "write": must be one of read, edit, full'
    ],
    HEAD + 'on_denied = "fail"\n' + ONE: ['plan.toml:4: campaign.on_denied = "fail": must be one of hold, done'],
    HEAD + 'args = "--fast"\n' + ONE: ['plan.toml:4: campaign.args = "--fast": must be a list of texts'],
    HEAD + 'args = ["--header", "Bearer abcdefgh1234"]\n' + ONE: [
        "plan.toml:4: campaign.args contains a secret (token) in text 2, which must not be in a plan"
    ],
    HEAD + 'env = { "A B" = "x" }\n' + ONE: ["plan.toml:4: campaign.env = {...}: 'A B' is not a valid name"],
    HEAD + "env = { LANG = 3 }\n" + ONE: ["plan.toml:4: campaign.env = {...}: LANG must be text in quotes"],
    HEAD + 'env = { PACELINE_UNIT = "x" }\n' + ONE: [
        "plan.toml:4: campaign.env = {...}: PACELINE_UNIT is set by Paceline itself"
    ],
    HEAD + 'env = { GITHUB_TOKEN = "x" }\n' + ONE: [
        "plan.toml:4: campaign.env sets GITHUB_TOKEN, which looks like a secret (by its name) and must not be"
        ' in a plan; set it in the environment and write env_pass = ["GITHUB_TOKEN"]'
    ],
    HEAD + 'env = { HELPER = "sk-ant-api03-Abcdefgh1234" }\n' + ONE: [
        "plan.toml:4: campaign.env sets HELPER, which looks like a secret (key)"
    ],
    HEAD + 'env = { DATABASE_URL = "postgres://me:pw@db/x" }\n' + ONE: [
        "plan.toml:4: campaign.env sets DATABASE_URL, which looks like a secret (password)"
    ],
    HEAD + 'env_pass = ["GITHUB-X"]\n' + ONE: [
        "plan.toml:4: campaign.env_pass = ['GITHUB-X']: 'GITHUB-X' is not a name"
    ],
    HEAD + 'env_pass = ["*"]\n' + ONE: ["plan.toml:4: campaign.env_pass = ['*']: '*' would pass every secret"],
    HEAD + 'env_strict = "yes"\n' + ONE: ['plan.toml:4: campaign.env_strict = "yes": must be true or false'],
    HEAD + "allow_metered = 1\n" + ONE: ["plan.toml:4: campaign.allow_metered = 1: must be true or false"],
    CALL + 'command = ["x"]\npermissions = "edit"\n' + ONE: [
        'plan.toml:5: campaign.permissions = "edit": a command has no permissions'
    ],
    HEAD + 'hosts = ["a#b"]\n' + ONE: [
        "plan.toml:4: campaign.hosts = ['a#b']: 'a#b' is not a name or pattern of hosts, such as \"box1\", \"gpu*\""
    ],
    HEAD + "hosts = []\n" + ONE: ["plan.toml:4: campaign.hosts = []: must be a list of texts"],
    HEAD + 'labels = ["with space"]\n' + ONE: [
        "plan.toml:4: campaign.labels = ['with space']: 'with space' is not a label, such as \"gpu\""
    ],
    HEAD + 'patience = "soon"\n' + ONE: ['plan.toml:4: campaign.patience = "soon": must be a duration'],
    "campaign = 1\n" + ONE: ["plan.toml:1: campaign must be a table"],
    "[campaign\n": ["plan.toml:1: not TOML"],
}


@pytest.mark.parametrize(
    ("text", "expected"), MISTAKES.items(), ids=[expected[0][:70] for expected in MISTAKES.values()]
)
def test_a_mistake_is_reported_with_its_place(text: str, expected: list[str], read: Read, tmp_path: Path) -> None:
    found = mistakes_of(read, text, tmp_path)

    assert [mistake[: len(start)] for mistake, start in zip(found, expected, strict=False)] == expected


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\\\b", ".hidden", "-x", "a\\n", " a", "a ", "x" * 201, "é" * 101]
)
def test_an_id_that_is_unsafe_as_a_file_name_is_refused(name: str, read: Read, tmp_path: Path) -> None:
    (mistake,) = mistakes_of(read, HEAD + f'[[unit]]\nid = "{name}"\nprompt = "x"', tmp_path)

    assert "this id cannot be used" in mistake


def test_all_mistakes_are_reported_at_once(read: Read, tmp_path: Path) -> None:
    text = HEAD + "max_sessions = 0\ntimout = 1\n" + ONE + ONE + '[units]\nglob = "none/*"\n'

    assert [mistake.partition(": ")[0] for mistake in mistakes_of(read, text, tmp_path)] == [
        "plan.toml:4",
        "plan.toml:5",
        "plan.toml:9",
        "plan.toml:13",
    ]


def test_prompts_have_a_size_that_the_agent_can_take(read: Read, tmp_path: Path) -> None:
    def unit(size: int) -> str:
        return f'[[unit]]\nid = "a"\nprompt = "{"é" * (size // 2)}"'

    assert len(read(HEAD + unit(1024 * 1024)).units) == 1
    assert "1,048,578 bytes" in mistakes_of(read, HEAD + unit(1024 * 1024 + 2), tmp_path)[0]
    by_argument = CALL + 'command = ["echo", "{prompt}"]\n'
    assert (
        "remove {prompt} from the command to get it on standard input"
        in mistakes_of(read, by_argument + unit(130_000), tmp_path)[0]
    )
    assert len(read(CALL + 'command = ["cat"]\n' + unit(130_000)).units) == 1
    aider = '[campaign]\nname = "c"\nagent = "aider"\n'
    assert "agent aider" in mistakes_of(read, aider + unit(130_000), tmp_path)[0]


def test_a_missing_plan_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("")

    with pytest.raises(InvalidPlan, match=r'plam.toml; did you mean "plan.toml"\?'):
        read_plan(tmp_path / "plam.toml")
    with pytest.raises(InvalidPlan, match="is a folder"):
        read_plan(tmp_path)


# -- any input -------------------------------------------------------------------------------


@given(st.text() | st.text("[]=\"'{}\n#.ab1, ").map(lambda text: HEAD + ONE + text))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_plan_or_refused(read: Read, text: str) -> None:
    with suppress(InvalidPlan):
        read(text.encode(errors="replace").decode())


def written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


PROMPTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)
IDS = st.from_regex(r"[a-zA-Z0-9_é🙂]([a-z .:-]{0,8}[a-z])?", fullmatch=True)


@given(
    units=st.dictionaries(IDS, PROMPTS, min_size=1, max_size=8),
    priority=st.integers(-100, 100),
    max_sessions=st.none() | st.integers(1, 10**9),
    timeout=st.none() | st.integers(1, 10**6),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plan_comes_back_as_it_was_written(
    read: Read, units: dict[str, str], priority: int, max_sessions: int | None, timeout: int | None
) -> None:
    lines = [HEAD, f"priority = {priority}"]
    lines += [] if max_sessions is None else [f"max_sessions = {max_sessions}"]
    lines += [] if timeout is None else [f'timeout = "{timeout}s"']
    lines += [f"[[unit]]\nid = {written(name)}\nprompt = {written(prompt)}" for name, prompt in units.items()]

    plan = read("\n".join(lines))

    assert {unit.id: unit.prompt for unit in plan.units} == units
    assert [unit.id for unit in plan.units] == list(units)
    assert (plan.campaign.priority, plan.campaign.max_sessions, plan.campaign.timeout) == (
        priority,
        max_sessions,
        timeout,
    )


# -- A long plan is added beside all else that the loop has to do -----------------------------------


async def test_a_long_plan_lets_others_have_their_turns(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    plan = Plan(campaign=Campaign(name="night"), units=tuple(UnitSpec(id=f"u{number}") for number in range(10_000)))
    seen: list[dict[str, UnitCounts]] = []

    async def look() -> None:
        while True:
            seen.append(store.counts())
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    added = await import_in_steps(store, plan, update=False, now=0.0, events=[Event("control.campaigns", 0.0)])
    looking.cancel()

    assert (added, store.counts()) == (Added(added=10_000), {"night": UnitCounts(todo=10_000)})
    assert len(seen) >= 30
    assert seen == [{}] * len(seen)
    assert [stored.event.name for stored in store.events()] == ["control.campaigns"]
    store.close()
