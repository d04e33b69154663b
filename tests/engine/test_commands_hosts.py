"""`paceline limit host:NAME`: the limit of a host that was added is kept with the host."""

from pathlib import Path

from paceline.engine import command_log
from paceline.engine.commands import remove_limit, scope_meant, set_limit
from paceline.hosts.messages import known_hosts, save_hosts
from paceline.settings import HostSettings, load_settings
from paceline.store import SqliteStore

NOW = 1_794_705_600.0


def test_the_limit_of_an_added_host_is_stored_with_it(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"HOME": str(tmp_path)}, {"hosts": {"box2": {"max_sessions": 8}}})
    store = SqliteStore.in_memory()
    save_hosts(store, {"box1": HostSettings(name="box1", ssh="ada@box1", max_sessions=4)})

    set_limit(store, settings, "host:box1", 3, now=NOW)
    set_limit(store, settings, "host:box2", 2, now=NOW)

    assert known_hosts(store) == {"box1": HostSettings(name="box1", ssh="ada@box1", max_sessions=3)}
    sent = [
        (command.event.scope, command.event.fields.get("limit")) for command in command_log.CommandReader(store).read()
    ]
    assert sent == [("host:box1", 3), ("host:box2", 2)]
    remove_limit(store, settings, "host:box1", now=NOW)
    assert known_hosts(store)["box1"].max_sessions is None
    assert scope_meant(store, settings, "host:box1") is scope_meant(store, settings, "host:box2") is None
