"""A machine of one's own in a folder: a home, a project in it, and /etc."""

import json
from pathlib import Path

import msgspec

from paceline.agents import Account, load_agent
from paceline.agents.billing_check import find_billing
from paceline.agents.launch import EnvironmentRules, Task, prepare_session
from paceline.agents.surroundings import BillingFinding

SUBSCRIPTION = Account(name="max-1", provider="any", kind="subscription")


class FakeMachine:
    """Files are named from the root: `home/.claude/settings.json`, `home/project/.env`, `etc/...`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "home" / "project"
        self.project.mkdir(parents=True)

    def write(self, name: str, content: object) -> Path:
        """Write a file: text as it is, all else as JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def find(
        self,
        agent: str,
        account: Account | None = SUBSCRIPTION,
        *,
        environ: dict[str, str] | None = None,
        args: tuple[str, ...] = (),
        model: str | None = None,
        command: tuple[str, ...] = (),
    ) -> list[BillingFinding]:
        """Return the findings for a session of the agent in the project."""
        task = Task(
            unit_id="c/a", attempt_id="a-1", prompt="hi", cwd=str(self.project), model=model, command=command, args=args
        )
        base = {"HOME": str(self.root / "home"), "PATH": "/bin"} | (environ or {})
        rules = EnvironmentRules(env_pass=tuple(environ or ()), allow_metered=True)
        session = prepare_session(load_agent(agent), task, account, base, rules=rules)
        return find_billing(load_agent(agent), account, session, model=model, root=str(self.root))

    def keys(self, agent: str, account: Account | None = SUBSCRIPTION, **options: object) -> dict[str, list[str]]:
        """Return the keys that hold a session, by file."""
        found: dict[str, list[str]] = {}
        for finding in self.find(agent, account, **options):  # type: ignore[arg-type]
            if finding.holds:
                name = finding.file.removeprefix(f"{self.root}/")
                found.setdefault(name, []).append(finding.key)
        return found


def metered(provider: str, key_env: str = "WORK_KEY") -> Account:
    return Account(name="work", provider=provider, key_env=key_env)


def renamed(account: Account, **fields: object) -> Account:
    return msgspec.structs.replace(account, **fields)
