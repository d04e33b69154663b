"""`paceline up` and `paceline token` as a person gives them: processes, ports, signals, exit codes."""

import contextlib
import json
import signal
import socket
import subprocess
import sys

import httpx
from tests.cli.shell import PATIENCE_SECONDS, Shell, url_of
from tests.warm_process import WarmProcess

Process = WarmProcess | subprocess.Popen[str]


def end(
    process: "WarmProcess | subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM
) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.wait(), out, err


def test_it_prints_one_address_that_opens_the_page_and_ends_on_a_signal(shell: Shell) -> None:
    process, line = shell.up()
    with httpx.Client(trust_env=False) as browser:
        opened = browser.get(url_of(line), follow_redirects=True)
        status = browser.get(opened.url.join("/v1/status")).json()
        with browser.stream("GET", opened.url.join("/v1/events")) as events:
            next(events.iter_raw())  # an endless reader must not hold up the end
            code, out, err = end(process, signal.SIGINT)

    assert (opened.status_code, opened.url.path, opened.url.query) == (200, "/", b"")
    assert (status["engine"]["state"], status["engine"]["pid"]) == ("leading", process.pid)
    assert (code, out, err) == (0, "", "")
    assert (shell.home / "token").stat().st_mode & 0o777 == 0o600
    log = shell.home / "paceline.log"
    assert not log.exists() or (shell.home / "token").read_text().strip() not in log.read_text()


def test_it_runs_campaigns_that_others_add_and_goes_on_after_a_restart(shell: Shell) -> None:
    (shell.folder / "docs.toml").write_text(
        '[campaign]\nname = "docs"\ncommand = ["sh", "-c", "touch {id}"]\n[[unit]]\nid = "a"\nprompt = "x"\n'
    )
    process, line = shell.up("--json")
    printed = json.loads(line)
    shell.run("add", "docs.toml")
    token = shell.run("token")[0].strip()
    base, headers = printed["url"].partition("/?")[0], {"authorization": f"Bearer {token}"}
    with httpx.Client(trust_env=False, base_url=base, headers=headers) as client:
        with client.stream("GET", "/v1/events?after=0&name=unit.done") as events:
            assert any("unit.done" in each for each in events.iter_lines())
        client.put("/v1/pool", json={"sessions": 9})
        done = client.get("/v1/status").json()["units"]["done"]
    first = end(process)
    process, line = shell.up()
    again = httpx.get(url_of(line).partition("/?")[0] + "/v1/pool", headers=headers, trust_env=False)
    second = end(process)

    assert printed == {"url": f"{base}/?token={token}", "pid": printed["pid"]}
    assert (done, (shell.folder / "a").exists()) == (1, True)
    assert again.json() == {"sessions": 9}
    assert (first[0], second[0]) == (0, 0)


def test_a_second_engine_is_asked_to_try_later(shell: Shell) -> None:
    process, _ = shell.up()

    _, err = shell.run("up", "--port", "0", code=75)

    assert f"another engine (process {process.pid}) runs" in err
    assert end(process)[0] == 0


def test_a_port_in_use_is_said_and_nothing_is_left(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, err = shell.run("up", "--port", str(port), code=2)

    assert err == f"Error: port {port} of 127.0.0.1 is in use by another program; give another one with --port\n"
    process, _ = shell.up()
    assert end(process)[0] == 0


def test_an_address_that_is_not_ours(shell: Shell) -> None:
    _, err = shell.run("up", "--host", "203.0.113.7", "--insecure", "--port", "0", code=2)

    assert "cannot listen on 203.0.113.7" in err


def test_without_a_token_that_holds_nothing_is_served(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "token").write_text("x" * 40)
    (shell.home / "token").chmod(0o644)
    _, known = shell.run("up", "--host", "0.0.0.0", "--port", "0", code=2)
    (shell.home / "token").write_text("")
    (shell.home / "token").chmod(0o600)
    _, empty = shell.run("up", "--port", "0", code=2)

    assert "can be read by others (mode 644): delete it, and a new token is made" in known
    assert "has no token of 24 or more characters: delete it, and one is made" in empty


def test_settings_say_where_to_listen_and_flags_win(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (shell.folder / "paceline.toml").write_text(f'[api]\nport = {port}\nhost = "localhost"\n')
        _, err = shell.run("up", code=2)
        process, line = shell.up()
    _, wrong = shell.run("up", code=2, PACELINE_API_PORT="99999")

    assert f"port {port} of localhost is in use" in err
    assert line.startswith("Paceline is up: http://localhost:")
    assert end(process)[0] == 0
    assert "PACELINE_API_PORT: api.port = 99999: must be a whole number from 0 to 65535" in wrong


def test_the_gateway_is_on_the_same_port(shell: Shell) -> None:
    process, line = shell.up()
    base = url_of(line).partition("/?")[0]

    answer = httpx.post(f"{base}/gateway/nobody/v1/messages", trust_env=False, headers={"x-api-key": "wrong"})

    assert answer.status_code == 401
    assert end(process)[0] == 0


def test_tokens_are_printed_and_made_where_there_are_none(shell: Shell) -> None:
    full = shell.run("token")[0].strip()
    read_only = shell.run("token", "--read-only")[0].strip()
    url = shell.run("token", "--url")[0].strip()

    assert full == (shell.home / "token").read_text().strip()
    assert read_only == (shell.home / "token-readonly").read_text().strip()
    assert full != read_only
    assert url == f"http://127.0.0.1:7433/?token={full}"


def test_a_daemon_on_another_port_is_found_by_commands_and_clients_of_its_home(shell: Shell) -> None:
    process, line = shell.up()
    url = shell.run("token", "--url")[0].strip()
    asked = subprocess.run(
        [sys.executable, "-c", "from paceline import Client; print(Client().url)"],
        env=shell.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    code = end(process)[0]
    token = (shell.home / "token").read_text().strip()

    assert url == url_of(line)
    assert (asked.stdout.strip(), asked.stderr) == (url.partition("/?")[0], "")
    assert code == 0
    assert shell.run("token", "--url")[0].strip() == f"http://127.0.0.1:7433/?token={token}"


def test_a_crowd_of_connections_leaves_the_engine_files_for_its_sessions(shell: Shell) -> None:
    (shell.folder / "docs.toml").write_text(
        '[campaign]\nname = "docs"\ncommand = ["true"]\n[[unit]]\nid = "a"\nprompt = "x"\n'
    )
    command = f"ulimit -n 200; exec {sys.executable} -m paceline up --port 0"
    process = shell.start_shell(command)
    assert process.stdout is not None
    address = httpx.URL(url_of(process.stdout.readline().strip()))
    assert address.port is not None
    with contextlib.ExitStack() as crowd:
        for _ in range(300):
            crowd.enter_context(socket.create_connection((address.host, address.port)))
        shell.run("add", "docs.toml")
        followed = shell.start("events", "--follow", "--unit", "docs/a")
        assert followed.stdout is not None
        last = next(line for line in followed.stdout if "started" not in line)

    assert "done docs/a" in last
    assert end(process)[0] == 0
