"""Runs the real agent CLIs against the fake provider and stores their output as samples for the detection tests.

    scripts/record_agents.py                  everything, into tests/detect/samples/recorded/
    scripts/record_agents.py --only 'codex/*' --into /tmp/samples

The CLIs have no network: the program restarts itself inside a network namespace that has only loopback. Each CLI gets
an empty home, a fake key and an environment of a few named variables. Paths of this machine are removed from the
samples.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests know how the CLIs are connected

import msgspec
from agent_cases import CASES, FIRST_PROMPT, Case
from tests.agents.agent_cli import (
    AGENTS,
    CAPPED_EXIT_CODE,
    INSTALLED,
    OPENCLAW,
    ROOT,
    base_environ,
    connect,
    end,
)

from paceline.testing import FakeProvider
from paceline.testing.provider import RequestRecord

RECORDED_AGENTS = AGENTS | {"openclaw": OPENCLAW}
RECORDED = ROOT / "tests" / "detect" / "samples" / "recorded"
INSIDE = "INSIDE_PACELINE_RECORDER"
PORT = 8765  # fixed, so that samples do not differ by it; the namespace has no other user of it
LONGEST_LIST = 4  # entries that are kept of the tool lists in an init event
MIN_HOST_NAME_LENGTH = 4  # a host named `vm` reveals nothing, and its letters occur everywhere
HOMES = "/var/tmp"  # with a home under /tmp, Codex prints a warning in every sample
HOME_SHOWN, AGENTS_SHOWN = "/home/user", "/opt/agents"


def main() -> int:
    arguments = _parser().parse_args()
    chosen = [case for case in CASES if fnmatchcase(f"{case.agent}/{case.name}", arguments.only)]
    missing = sorted({case.agent for case in chosen if not RECORDED_AGENTS[case.agent].program.exists()})
    if missing:
        print(f"not installed: {', '.join(missing)}; run `make agents openclaw`", file=sys.stderr)
        return 2
    if INSIDE not in os.environ:
        return _run_without_network()
    for case in chosen:
        patient = msgspec.structs.replace(case, cap_seconds=case.cap_seconds * arguments.patience)
        print(f"{case.agent}/{case.name}: {record(patient, arguments.into)}", flush=True)
    return 0 if chosen else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Record the real agent CLIs against the fake provider.")
    parser.add_argument("--only", default="*", help="a pattern of agent/case")
    parser.add_argument("--patience", type=float, default=1.0, help="a factor on all time limits, for a busy machine")
    parser.add_argument("--into", type=Path, default=RECORDED, help="where the samples go")
    return parser


def _run_without_network() -> int:
    """Run this program again in a network namespace with only loopback."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *as_root, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable]
    return subprocess.run([*command, *sys.argv], env=os.environ | {INSIDE: "1"}, check=False).returncode


def record(case: Case, into: Path) -> str:
    """Run one case and write its three files. Returns a short summary."""
    agent = RECORDED_AGENTS[case.agent]
    folder = Path(tempfile.mkdtemp(prefix="recorder-", dir=HOMES))
    try:
        with FakeProvider(case.scenario, port=PORT) as provider:
            meta = run(case, case.argv or agent.argv, folder, provider)
            if case.then is not None:
                first_run = len(provider.requests)
                meta = run(case, case.then, folder, provider)
                meta["remembers"] = remembers(provider.requests[first_run:])
        target = into / case.agent
        target.mkdir(parents=True, exist_ok=True)
        for name, suffix in (("stdout", ".out"), ("stderr", ".err")):
            text = scrub((folder / name).read_text(errors="replace"), folder)
            (target / (case.name + suffix)).write_text(text)
        (target / f"{case.name}.meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    finally:
        shutil.rmtree(folder)
    return f"exit {meta['exit_code']} after {meta['seconds']} s, {meta['model_requests']} requests"


def run(case: Case, argv: tuple[str, ...], folder: Path, provider: FakeProvider) -> dict[str, object]:
    """Run the CLI once. Its output stays in the folder. Returns the facts of the run."""
    agent = RECORDED_AGENTS[case.agent]
    env = base_environ(folder, agent) | connect(agent, folder / "home", provider.url, case.files)
    env |= {name: value.replace("{url}", provider.url) for name, value in case.env.items()}
    work = folder / "home" / "work"
    work.mkdir(exist_ok=True)
    started = time.time()
    requests_before = len(provider.requests)
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [str(agent.program), *argv],
            cwd=work,
            env={name: value for name, value in env.items() if value},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        exit_code, capped = wait(process, case, provider)
    return {
        "cli": case.agent,
        "version": agent.version,
        "case": case.name,
        "argv": [agent.command, *argv],
        "exit_code": exit_code,
        "stopped_after_s": case.cap_seconds if capped else None,
        "seconds": round(time.time() - started, 3),
        "recorded_at": round(started, 3),
        "model_requests": len(provider.requests) - requests_before,
        "outcome": case.outcome,
    }


def remembers(requests: list[RequestRecord]) -> bool:
    """Return whether the second run sent the messages of the first to the provider."""
    return any(FIRST_PROMPT in prompt.splitlines() for request in requests for prompt in request.prompts)


def wait(process: "subprocess.Popen[bytes]", case: Case, provider: FakeProvider) -> tuple[int, bool]:
    """Return the exit code as a shell reports it, and whether the run was ended because it took too long."""
    deadline = time.monotonic() + case.cap_seconds
    is_terminated = False
    while time.monotonic() < deadline:
        if (code := process.poll()) is not None:
            return (code if code >= 0 else 128 - code), False
        if case.terminate and not is_terminated and any(record.output_tokens for record in provider.requests):
            os.killpg(process.pid, signal.SIGTERM)
            is_terminated = True
        time.sleep(0.05)
    end(process)
    return CAPPED_EXIT_CODE, True


def scrub(text: str, folder: Path) -> str:
    """Remove the paths and the name of this machine, and shorten the long lists of an init event."""
    home = str(folder / "home")
    dashed = re.sub(r"[^A-Za-z0-9]", "-", home)  # as Claude Code names a project's folder
    for seen, shown in (
        (home, HOME_SHOWN),
        (dashed, HOME_SHOWN.replace("/", "-")),
        (str(folder), HOME_SHOWN),
        (str(INSTALLED), AGENTS_SHOWN),
        (str(INSTALLED.resolve()), AGENTS_SHOWN),
        (str(ROOT), "/opt/paceline"),
    ):
        text = text.replace(seen, shown)
    if len(socket.gethostname()) >= MIN_HOST_NAME_LENGTH:
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text)
    return "".join(_shorten(line) for line in text.splitlines(keepends=True))


def _shorten(line: str) -> str:
    if '"init"' not in line:
        return line
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return line
    if not isinstance(event, dict) or "init" not in event.values():
        return line
    short = {key: value[:LONGEST_LIST] if isinstance(value, list) else value for key, value in event.items()}
    return json.dumps(short, ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
