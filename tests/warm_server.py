"""A process that has imported all of Paceline, and forks itself for each command that it is asked to run.

A fork is a real process with its own id, folder, variables, output and end. It saves only what every start of Python
and every import costs, which is most of the time of most commands.
"""

import contextlib
import faulthandler
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import time
from importlib import import_module
from typing import Any

LONGEST_REQUEST = 1 << 20


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Return None when nobody asks any more, and in each fork the command that it has to run."""
    reports: dict[int, int] = {}

    def reap(*_: object) -> None:
        for pid in list(reports):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # a signal came in between: the inner call has taken it
                continue
            if ended:
                with contextlib.suppress(BrokenPipeError), open(reports.pop(pid), "w") as report:
                    report.write(f"{os.waitstatus_to_exitcode(status)}\n")

    signal.signal(signal.SIGCHLD, reap)
    while True:
        request, files, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 3)
        if not request:
            return None
        out, err, report = files
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            for each in (*reports.values(), report):
                os.close(each)
            become(out, err)
            command: dict[str, Any] = json.loads(request)
            return command
        os.close(out)
        os.close(err)
        os.write(report, f"{pid}\n".encode())
        reports[pid] = report
        reap()


def become(out: int, err: int) -> None:
    """Use these files as the output and the errors of this process."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def import_all() -> None:
    commands = import_module("paceline.cli.commands")
    for module in pkgutil.iter_modules(commands.__path__):
        import_module(f"{commands.__name__}.{module.name}")
    import_module("paceline.daemon.daemon")
    import_module("paceline.store.postgres")
    import_module("paceline.api.app")._handlers()
    import_module("paceline.detect").compile_patterns()


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        import_all()
        gc.freeze()
        command = serve(requests)
    if command is None:
        return
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if command["has_nohup"] else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(command["env"])
    time.tzset()
    os.chdir(command["cwd"])
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.argv = ["paceline", *command["argv"]]
    runpy.run_module("paceline", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
