"""The operator's commands: pause, resume, cancel, delete, retry, pool, limit, cooldown, restore.

Here: the text of a command, the order it becomes, and the sentence that confirms it, for commands and `top` alike.
Never here: checks and effects of an order; `paceline.engine.commands` has them, also for the API.
"""

import time
from collections.abc import Sequence

import msgspec

from paceline.cli.output import print_value, say
from paceline.cli.wiring import Home
from paceline.config_files.durations import duration_seconds
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.settings import AUTO
from paceline.core.values.validation import check_limit
from paceline.engine import commands as orders
from paceline.errors import InvalidInput, InvalidLimit

DEFAULT = "default"
NONE = "none"


class ControlResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did. `message` is for people, `values` are the fields of its JSON."""

    message: str
    values: dict[str, object]
    needs_engine: bool = True
    """Return whether it takes effect only once an engine runs."""


def print_result(home: Home, result: ControlResult, *, as_json: bool) -> None:
    is_running = home.engine_leader() is not None
    if as_json:
        print_value({"ok": True, **result.values, "engine": "leading" if is_running else "stopped"})
        return
    say(result.message)
    if result.needs_engine and not is_running:
        say("No engine runs now: this takes effect when one starts (paceline run PLAN).", style="dim")


# -- campaigns -----------------------------------------------------------------------------------


def chosen_campaigns(names: list[str], *, everything: bool) -> list[str] | None:
    """Return the named campaigns, or None for all of them."""
    if everything == bool(names):
        raise InvalidInput("name the campaigns, or give --all")
    return None if everything else names


def pause(home: Home, names: list[str] | None) -> ControlResult:
    changed = orders.pause_campaigns(home.store, names, now=time.time())
    message = _changed("paused", changed, "running sessions finish; nothing new starts")
    return ControlResult(message=message, values={"campaigns": changed, "state": "paused"})


def resume(home: Home, names: list[str] | None) -> ControlResult:
    changed = orders.resume_campaigns(home.store, names, now=time.time())
    message = _changed("resumed", changed, "units start as there is room")
    return ControlResult(message=message, values={"campaigns": changed, "state": "active"})


def _changed(what: str, names: list[str], detail: str) -> str:
    return f"{what} {', '.join(names)}: {detail}" if names else f"no campaign had to be {what}"


def cancel(home: Home, name: str) -> ControlResult:
    """Cancel all units that are not done. An engine ends the running sessions; without one they are ended here."""
    cancelled = orders.cancel_campaign(home.store, name, now=time.time())
    if home.engine_leader() is None:
        _end_sessions(home, cancelled.running)
    running = f"{len(cancelled.running)} of them running, whose sessions are being ended"
    return ControlResult(
        message=f"cancelled {name}: {cancelled.units} units, {running}",
        values={"campaigns": [name], "cancelled": cancelled.units, "running": cancelled.running},
        needs_engine=False,
    )


def _end_sessions(home: Home, unit_ids: Sequence[str]) -> None:
    executor = home.executor()
    try:
        for unit_id in unit_ids:
            unit = home.store.unit(unit_id)
            handle = executor.adopt(unit.attempt_id) if unit is not None and unit.attempt_id is not None else None
            if handle is not None:
                executor.stop(handle)
    finally:
        executor.close()


def delete(home: Home, name: str) -> ControlResult:
    orders.delete_campaign(home.store, name, now=time.time())
    return ControlResult(
        message=f"deleted {name}; its name can be used again", values={"campaign": name}, needs_engine=False
    )


def retry_failed(home: Home, name: str) -> ControlResult:
    count = orders.retry_campaign(home.store, name, now=time.time())
    units = "1 unit waits" if count == 1 else f"{count} units wait"
    message = f"{name}: {units} to be tried again" if count else f"{name}: no unit is held or quarantined"
    return ControlResult(message=message, values={"campaign": name, "retried": count}, needs_engine=bool(count))


# -- capacity ------------------------------------------------------------------------------------


def resize_pool(home: Home, size: str) -> ControlResult:
    limit = _parse_limit(size)
    orders.set_pool(home.store, limit, now=time.time())
    message = f"the pool is {_limit_text(limit)} sessions; running sessions are never ended for it"
    return ControlResult(message=message, values={"scope": SESSIONS, "limit": limit})


def change_limit(home: Home, scope: str, text: str) -> ControlResult:
    """Set a number, no limit, or the limit of the settings again. What was learned about the scope is forgotten."""
    if text.lower() == DEFAULT:
        scope = orders.reset_limit(home.store, scope, now=time.time())
        return ControlResult(
            message=f"{scope} has the limit of the settings again", values={"scope": scope, "limit": DEFAULT}
        )
    limit = _parse_limit(text)
    scope = orders.set_limit(home.store, scope, limit, now=time.time())
    return ControlResult(
        message=f"the limit of {scope} is {_limit_text(limit)}", values={"scope": scope, "limit": limit}
    )


def change_cooldown(home: Home, scope: str, text: str) -> ControlResult:
    if text.lower() == AUTO:
        scope = orders.set_cooldown(home.store, scope, AUTO, now=time.time())
        message = f"the cooldown of {scope} is learned from its usage readings"
        return ControlResult(message=message, values={"scope": scope, "seconds": AUTO})
    seconds = 0.0 if text.strip() == "0" else duration_seconds(text, "cooldown")
    scope = orders.set_cooldown(home.store, scope, seconds, now=time.time())
    message = f"a released slot of {scope} counts for {seconds:g} s more"
    return ControlResult(message=message, values={"scope": scope, "seconds": seconds})


def restore(home: Home, scope: str, *, known: Sequence[str] = ()) -> ControlResult:
    """Forget what was learned about a scope, and lift a hold. Scopes in `known` are taken without a check."""
    scope = orders.restore_scope(home.store, home.settings, scope, known=known, now=time.time())
    return ControlResult(
        message=f"{scope} is back at its configured limit, and nothing holds it", values={"scope": scope}
    )


def _parse_limit(text: str) -> int | None:
    if text.lower() == NONE:
        return None
    try:
        return check_limit(int(text))
    except ValueError:
        raise InvalidLimit(f"{text!r:.40} is not a limit: give a whole number of 1 or more, or none") from None


def _limit_text(limit: int | None) -> str:
    return NONE if limit is None else str(limit)
