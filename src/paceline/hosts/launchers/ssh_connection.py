"""Programs on another machine, run with the `ssh` of this one: the user's configuration, keys and agent hold.

Never here: what is run there.
"""

import os
import re
import shlex
import signal
import subprocess
from typing import Final

import msgspec

from paceline.errors import LaunchFailed

CONNECT_SECONDS: Final = 15
"""How long a connection may take. A machine in a data centre answers within one, over a bad line within ten."""
KEEP_ALIVE_SECONDS: Final = 10
"""How often the other side is asked whether it is there. Three times without an answer, the connection ends."""
COMMAND_SECONDS: Final = 120.0
"""How long a command may take, without an installation. A login with a slow profile needs seconds."""
OPTIONS: Final = (
    *("-o", "BatchMode=yes"),  # nobody is there to type a password
    *("-o", f"ConnectTimeout={CONNECT_SECONDS}"),
    *("-o", f"ServerAliveInterval={KEEP_ALIVE_SECONDS}"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no"),  # a shared connection could end while a worker is started over it
    *("-o", "ControlPath=none"),
)
_SSH_FAILED: Final = 255
_LONGEST_SHOWN: Final = 400
_ADVICE: Final = (
    (r"host key verification failed|remote host identification has changed", "its key is not known or has changed"),
    (r"permission denied|too many authentication failures", "it does not accept your key"),
    (r"could not resolve|name or service not known|temporary failure in name", "its name cannot be resolved"),
    (r"connection refused", "nothing listens there"),
    (r"timed out|no route to host|network is unreachable|operation timed out", "it does not answer"),
)
_FIXES: Final = {
    "its key is not known or has changed": "check the key, and connect once by hand to accept it: ssh {destination}",
    "it does not accept your key": (
        "let `ssh -o BatchMode=yes {destination} true` work first: ssh-copy-id {destination}, or ssh-add for one with "
        "a passphrase"
    ),
    "its name cannot be resolved": "correct the name, or add it to ~/.ssh/config",
    "nothing listens there": "start its SSH server, or correct the port: ssh://user@host:port",
    "it does not answer": "start the machine, or check the network and its firewall",
}


class SshResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a program printed on the other machine, and its exit code."""

    code: int
    output: str
    errors: str


class SshConnection:
    """One destination. `options` are further arguments for ssh; tests use them."""

    def __init__(self, host: str, destination: str, options: tuple[str, ...] = ()) -> None:
        self.host = host
        self.destination = destination
        self.options = options

    def argv(self, *arguments: str) -> list[str]:
        """Return the command that connects. Arguments before the destination are options of ssh."""
        return ["ssh", *OPTIONS, *self.options, *arguments, "--", self.destination]

    def run(self, script: str, content: bytes = b"", *, seconds: float = COMMAND_SECONDS) -> SshResult:
        """Run a script of the POSIX shell there, with the content as its input.

        Raise `LaunchFailed` if the machine cannot be reached or does not answer in time. Any login shell of the user
        there understands the one quoted word after `sh -c`.
        """
        argv = [*self.argv("-T"), f"exec sh -c {shlex.quote(script)}"]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise LaunchFailed(
                f"host {self.host}: ssh cannot be run here ({error.strerror}); install the OpenSSH client"
            ) from error
        try:
            output, errors = process.communicate(content, timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise LaunchFailed(
                f"host {self.host}: ssh {self.destination} did not finish within {seconds:g} s; check the load there, "
                "and that its login files do not wait for input"
            ) from None
        result = SshResult(
            code=process.returncode, output=output.decode(errors="replace"), errors=errors.decode(errors="replace")
        )
        if result.code == _SSH_FAILED:
            raise LaunchFailed(self.failure(result.errors))
        return result

    def failure(self, errors: str) -> str:
        """Return what is wrong with the connection, and what to do about it, by what ssh has printed."""
        last = last_line_of(errors) or "ssh gave no reason"
        found = next((what for pattern, what in _ADVICE if re.search(pattern, errors, re.IGNORECASE)), None)
        if found is None:
            return f"host {self.host}: ssh {self.destination} failed: {last}; try it by hand"
        fix = _FIXES[found].format(destination=self.destination)
        return f"host {self.host}: ssh {self.destination} failed, {found} ({last}); {fix}"


def last_line_of(text: str) -> str:
    """Return the last line that says something, cut to what fits into a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -@")]
    return lines[-1][:_LONGEST_SHOWN] if lines else ""
