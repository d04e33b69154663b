"""What doctor finds about gateways of OpenClaw."""

from pathlib import Path

import pytest
from tests.fake_openclaw import FakeOpenClaw

from paceline.cli.commands.doctor import Finding, examine_openclaw
from paceline.settings import load_settings


def findings(folder: Path, environ: dict[str, str], accounts: dict[str, object] | None = None) -> list[Finding]:
    settings = load_settings(folder, {"HOME": str(folder)}, {"accounts": accounts or {}})
    return list(examine_openclaw(settings, environ))


def test_nobody_who_does_not_use_openclaw_sees_anything_of_it(tmp_path: Path) -> None:
    assert findings(tmp_path, {}) == []


def test_a_gateway_that_accepts_sub_agents_is_well_and_none_is_spawned(tmp_path: Path) -> None:
    with FakeOpenClaw() as claw:
        account = {
            "provider": "openclaw-gateway",
            "kind": "metered",
            "key_env": "OPS_TOKEN",
            "env": {"OPENCLAW_GATEWAY_URL": claw.url},
        }
        found = findings(tmp_path, {"OPS_TOKEN": claw.token}, {"ops": account})

    detail = f"the gateway of OpenClaw at {claw.url} accepts sub-agents"
    assert (found, claw.spawns) == ([Finding(what="ops", verdict="ok", detail=detail)], 0)


@pytest.mark.parametrize(
    ("allowed", "token", "detail", "fix"),
    [
        ((), "testtoken", "does not offer sessions_spawn", 'add "sessions_spawn" to gateway.tools.allow'),
        (("sessions_spawn",), "wrong", "refused the token (Unauthorized)", "set OPENCLAW_GATEWAY_TOKEN"),
    ],
)
def test_a_gateway_that_does_not_let_us_in_is_reported_with_the_fix(
    tmp_path: Path, allowed: tuple[str, ...], token: str, detail: str, fix: str
) -> None:
    with FakeOpenClaw(allowed=allowed) as claw:
        environ = {"OPENCLAW_GATEWAY_URL": claw.url, "OPENCLAW_GATEWAY_TOKEN": token}
        [finding] = findings(tmp_path, environ)

    assert (finding.what, finding.verdict) == ("openclaw-gateway", "wrong")
    assert detail in finding.detail
    assert fix in (finding.fix or "")


def test_a_gateway_that_is_down_is_reported(tmp_path: Path) -> None:
    with FakeOpenClaw() as claw:
        environ = {"OPENCLAW_GATEWAY_URL": claw.url, "OPENCLAW_GATEWAY_TOKEN": "t"}

    [finding] = findings(tmp_path, environ)

    detail = f"cannot connect to the OpenClaw gateway at {claw.url}: connection refused"
    assert finding == Finding(
        what="openclaw-gateway", verdict="wrong", detail=detail, fix="start it: openclaw gateway run"
    )
