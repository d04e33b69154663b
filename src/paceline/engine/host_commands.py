"""Adding and removing hosts: what is stored, and the command that a running engine reads.

Never here: tokens and workers (`cli/commands/hosts.py`).
"""

import time

from paceline.agents.account import split_login
from paceline.config_files.documents import did_you_mean
from paceline.engine import command_log
from paceline.errors import InvalidInput, UnknownName
from paceline.hosts.known_hosts import known_hosts, save_hosts
from paceline.settings import HostSettings
from paceline.store import Store


def add_host(store: Store, host: HostSettings, *, update: bool = False) -> None:
    """Store a host. Raise `InvalidInput` if there is one of that name, unless it is to be updated."""
    with store.together():
        hosts = known_hosts(store)
        if host.name in hosts and not update:
            raise InvalidInput(
                f"there is a host {host.name} already: `paceline hosts add {host.name} --update ...` changes it, "
                f"`paceline hosts remove {host.name}` removes it"
            )
        save_hosts(store, {**hosts, host.name: host})
        command_log.send(store, "host", now=time.time(), action="add", target=host.name)


def remove_host(store: Store, name: str, *, force: bool = False) -> HostSettings:
    """Forget a host, and return what it was. Raise `InvalidInput` while units run there, unless it is forced."""
    with store.together():
        hosts = known_hosts(store)
        if name not in hosts:
            hint = did_you_mean(name, hosts) or "; `paceline hosts` lists them"
            raise UnknownName(f"there is no host {name!r:.80}{hint}")
        running = [unit.id for unit in store.running_units() if split_login(unit.account or "")[1] == name]
        if running and not force:
            more = f" and {len(running) - 3} more" if len(running) > 3 else ""
            raise InvalidInput(
                f"{len(running)} units run on {name} ({', '.join(running[:3])}{more}): wait for them or cancel them; "
                "--force removes the host nevertheless, and they run again elsewhere after its lease"
            )
        host = hosts.pop(name)
        save_hosts(store, hosts)
        command_log.send(store, "host", now=time.time(), action="remove", target=name)
    return host
