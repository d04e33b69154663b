"""`pause`, `resume`, `cancel`, `delete`, `retry`, `pool`, `limit`, `cooldown`, `restore`: orders, and what is said.

What is ordered is checked and stored by `paceline.engine.commands`, as it is for the API.
"""

import sys
import time
from collections.abc import Sequence

import typer

from paceline.cli.output import one_line, print_value, say
from paceline.cli.wiring import Home
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.settings import AUTO
from paceline.core.values.validation import check_limit
from paceline.engine import commands as orders
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import InvalidInput, InvalidLimit
from paceline.settings import parse_duration

DEFAULT = "default"
NONE = "none"


# -- campaigns -----------------------------------------------------------------------------------


def pause_campaigns(home: Home, names: list[str], *, everything: bool, as_json: bool) -> None:
    changed = orders.pause_campaigns(home.store, _chosen(names, everything=everything), now=time.time())
    told = _named("paused", changed, "sessions that run go on to their end; nothing new starts")
    _tell(home, told, as_json, campaigns=changed, state="paused")


def resume_campaigns(home: Home, names: list[str], *, everything: bool, as_json: bool) -> None:
    changed = orders.resume_campaigns(home.store, _chosen(names, everything=everything), now=time.time())
    _tell(home, _named("resumed", changed, "units start as there is room"), as_json, campaigns=changed, state="active")


def _chosen(names: list[str], *, everything: bool) -> list[str] | None:
    if everything == bool(names):
        raise InvalidInput("name the campaigns, or say --all")
    return None if everything else names


def _named(what: str, changed: list[str], detail: str) -> str:
    return f"{what} {', '.join(changed)}: {detail}" if changed else f"nothing had to be {what}"


def cancel_campaign(home: Home, name: str, *, as_json: bool) -> None:
    """Nothing more of it starts, and what runs is ended: by the engine, or here where there is none."""
    cancelled = orders.cancel_campaign(home.store, name, now=time.time())
    if home.engine_leader() is None:
        end_sessions(home, cancelled.running)
    told = f"cancelled {name}: {cancelled.units} units, of which {len(cancelled.running)} ran and are being ended"
    _tell(home, told, as_json, note=False, campaigns=[name], cancelled=cancelled.units, running=cancelled.running)


def delete_campaign(home: Home, name: str, *, is_sure: bool, as_json: bool) -> None:
    """Asks first where someone can answer; a program must say that it is sure."""
    find_campaign(home.store, name)
    if not is_sure:
        if not sys.stdin.isatty():
            raise InvalidInput(f"deleting {name} forgets all its units and their results; say --yes if you are sure")
        typer.confirm(f"Delete {one_line(name)} with all its units and their results?", abort=True)
    orders.delete_campaign(home.store, name, now=time.time())
    _tell(home, f"deleted {name}; its name may be used again", as_json, note=False, campaign=name)


def end_sessions(home: Home, unit_ids: Sequence[str]) -> None:
    """Of units that were cancelled while no engine runs."""
    executor = home.executor()
    try:
        for unit_id in unit_ids:
            unit = home.store.unit(unit_id)
            handle = executor.adopt(unit.attempt_id) if unit is not None and unit.attempt_id is not None else None
            if handle is not None:
                executor.stop(handle)
    finally:
        executor.close()


def retry_campaign(home: Home, name: str, *, as_json: bool) -> None:
    count = orders.retry_campaign(home.store, name, now=time.time())
    units = "1 unit waits" if count == 1 else f"{count} units wait"
    told = f"{name}: {units} to be tried again" if count else f"{name}: no unit is held or quarantined"
    _tell(home, told, as_json, note=bool(count), campaign=name, retried=count)


# -- capacity ------------------------------------------------------------------------------------


def set_pool(home: Home, size: str, *, as_json: bool) -> None:
    limit = parse_limit(size)
    orders.set_pool(home.store, limit, now=time.time())
    told = f"the pool is {_count(limit)} sessions; what runs is never ended for it"
    _tell(home, told, as_json, scope=SESSIONS, limit=limit)


def set_limit(home: Home, scope: str, text: str, *, as_json: bool) -> None:
    """A number, none, or the value of the file again. What was learnt of the scope is forgotten."""
    if text.lower() == DEFAULT:
        scope = orders.reset_limit(home.store, scope, now=time.time())
        _tell(home, f"{scope} has the limit of the settings again", as_json, scope=scope, limit=DEFAULT)
        return
    limit = parse_limit(text)
    scope = orders.set_limit(home.store, scope, limit, now=time.time())
    _tell(home, f"the limit of {scope} is {_count(limit)}", as_json, scope=scope, limit=limit)


def set_cooldown(home: Home, scope: str, text: str, *, as_json: bool) -> None:
    if text.lower() == AUTO:
        scope = orders.set_cooldown(home.store, scope, AUTO, now=time.time())
        _tell(home, f"the cooldown of {scope} is learnt from its usage readings", as_json, scope=scope, seconds=AUTO)
        return
    seconds = 0.0 if text.strip() == "0" else parse_duration(text, "cooldown")
    scope = orders.set_cooldown(home.store, scope, seconds, now=time.time())
    _tell(home, f"a released slot of {scope} counts {seconds:g} s more", as_json, scope=scope, seconds=seconds)


def restore_scope(home: Home, scope: str, *, as_json: bool) -> None:
    """Forget what was learnt, and lift a hold."""
    scope = orders.restore_scope(home.store, home.settings, scope, now=time.time())
    _tell(home, f"{scope} is back at its configured limit, and nothing holds it", as_json, scope=scope)


def parse_limit(text: str) -> int | None:
    if text.lower() == NONE:
        return None
    try:
        return check_limit(int(text))
    except ValueError:
        raise InvalidLimit(f"{text!r:.40} is no limit: a whole number of 1 or more, or none") from None


def _count(limit: int | None) -> str:
    return NONE if limit is None else str(limit)


def _tell(home: Home, message: str, as_json: bool, *, note: bool = True, **values: object) -> None:
    is_running = home.engine_leader() is not None
    if as_json:
        print_value({"ok": True, **values, "engine": "leading" if is_running else "stopped"})
        return
    say(message)
    if note and not is_running:
        say("No engine runs now: it takes effect when one starts (paceline run PLAN).", style="dim")
