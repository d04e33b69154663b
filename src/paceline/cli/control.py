"""The operator's commands: pause, resume, cancel, delete, retry, accept, pool, limit, cooldown, restore.

Here: the text of a command, the order it becomes, and the sentence that confirms it, for commands and `top` alike.
Never here: checks and effects of an order; `paceline.engine.commands` has them, also for the API.
"""

import shlex
import time
from collections.abc import Sequence

import msgspec

from paceline.cli.output import print_value, say
from paceline.cli.unit_lookup import find_target, find_unit
from paceline.cli.wiring import Home
from paceline.config_files.durations import duration_seconds
from paceline.core.values.rates import Rate
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.settings import AUTO
from paceline.core.values.validation import check_limit
from paceline.engine import commands as orders
from paceline.engine import governor_state
from paceline.engine.campaign_lookup import find_campaign
from paceline.engine.output_retention import attempts_of_campaign, remove_campaign_output
from paceline.engine.workspace_retention import (
    check_workspaces,
    leave_workspaces,
    remove_workspaces,
    workspaces_of_campaign,
)
from paceline.errors import InvalidInput, InvalidLimit
from paceline.leadership import no_leader
from paceline.settings import governor_settings
from paceline.store import Campaign, Unit

DEFAULT = "default"
NONE = "none"


class ControlResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did. `message` is for people, `values` are the fields of its JSON."""

    message: str
    values: dict[str, object]
    needs_engine: bool = True
    """Whether it takes effect only once an engine runs."""
    warning: str | None = None


def print_result(home: Home, result: ControlResult, *, as_json: bool) -> None:
    is_running = home.engine_leader() is not None
    if as_json:
        warning = {} if result.warning is None else {"warning": result.warning}
        print_value({"ok": True, **result.values, **warning, "engine": "leading" if is_running else "stopped"})
        return
    say(result.message)
    if result.warning is not None:
        say(f"Warning: {result.warning}", style="yellow")
    if result.needs_engine and not is_running:
        say("No engine runs now: this takes effect when one starts (paceline run PLAN).", style="dim")


# -- campaigns -----------------------------------------------------------------------------------


def chosen_campaigns(names: list[str], *, everything: bool) -> list[str] | None:
    """Return the named campaigns, or None for all of them."""
    if everything == bool(names):
        raise InvalidInput("name the campaigns, or give --all")
    return None if everything else names


def pause(home: Home, names: list[str] | None, *, at_turn: bool = False) -> ControlResult:
    """Pause campaigns and units by name, or all campaigns. With `at_turn` running sessions end at their next turn."""
    campaigns, units = _targets(home, names)
    now = time.time()
    with home.store.together():
        changed = orders.pause_campaigns(home.store, campaigns, at_turn=at_turn, now=now)
        held = [unit.id for unit in units if orders.pause_unit(home.store, unit, at_turn=at_turn, now=now)]
    sessions = "running sessions end at their next turn" if at_turn else "running sessions finish"
    message = _changed("paused", [*changed, *held], f"{sessions}; nothing new starts")
    return ControlResult(message=message, values={"campaigns": changed, "units": held, "state": "paused"})


def resume(home: Home, names: list[str] | None) -> ControlResult:
    """Resume campaigns and units by name, or all campaigns."""
    campaigns, units = _targets(home, names)
    with home.store.together():
        changed = orders.resume_campaigns(home.store, campaigns, now=time.time())
        resumed = [unit.id for unit in units if orders.resume_unit(home.store, unit, now=time.time())]
    message = _changed("resumed", [*changed, *resumed], "units start as there is room")
    return ControlResult(message=message, values={"campaigns": changed, "units": resumed, "state": "active"})


def _targets(home: Home, names: list[str] | None) -> tuple[list[str] | None, list[Unit]]:
    """Return the campaigns (None for all) and the units that the names stand for."""
    if names is None:
        return None, []
    found = [find_target(home.store, name) for name in names]
    return [each.name for each in found if isinstance(each, Campaign)], [x for x in found if isinstance(x, Unit)]


def _changed(what: str, names: list[str], detail: str) -> str:
    return f"{what} {', '.join(names)}: {detail}" if names else f"nothing had to be {what}"


def cancel(home: Home, name: str) -> ControlResult:
    """Cancel a unit, or all units of a campaign that are not done.

    An engine ends the running sessions; without one they are ended here.
    """
    target = find_target(home.store, name)
    if isinstance(target, Unit):
        cancelled = orders.cancel_unit(home.store, target, now=time.time())
        name, values = target.id, {"units": [target.id]}
    else:
        cancelled = orders.cancel_campaign(home.store, target.name, now=time.time())
        values = {"campaigns": [target.name]}
    if home.engine_leader() is None:
        _end_sessions(home, cancelled.running)
    return ControlResult(
        message=f"cancelled {name}: {_cancelled_text(cancelled)}; to undo it: paceline retry {name}",
        values={**values, "cancelled": cancelled.units, "running": cancelled.running},
        needs_engine=False,
    )


def _cancelled_text(cancelled: orders.Cancelled) -> str:
    units = "1 unit" if cancelled.units == 1 else f"{cancelled.units} units"
    match len(cancelled.running):
        case 0:
            return f"{units}, none of them running"
        case 1:
            return f"{units}, 1 of them running; its session is being ended"
        case running:
            return f"{units}, {running} of them running; their sessions are being ended"


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


def delete(home: Home, name: str, *, force: bool = False) -> ControlResult:
    """Delete a campaign with its units, their workspaces, and the prompts and the output of all their attempts.

    Refused, unless `force`, while a workspace has uncommitted work. Branches that are not merged stay.
    """
    now = time.time()
    attempts = attempts_of_campaign(home.store, name)
    workspaces = workspaces_of_campaign(home.store, name)
    if not force:
        check_workspaces(workspaces)
    orders.delete_campaign(home.store, name, now=now)
    removed = remove_campaign_output(home.spool(), name, attempts, now)
    folders = remove_workspaces(workspaces, force=force)
    left = leave_workspaces(home.store, workspaces, force=force)
    gone = f" and the output of {counted(removed.attempts, 'attempt')}" if removed.attempts else ""
    gone += f" and {counted(folders.removed, 'workspace')}" if folders.removed else ""
    stays = "".join(f"\nkept {kept.path}: {kept.reason}" for kept in folders.kept)
    stays += f"\n{left_text(left)}" if left else ""
    return ControlResult(
        message=f"deleted {name}{gone}; its name can be used again{stays}",
        values={"campaign": name, "outputs": removed.attempts, "workspaces": folders, "left_to_hosts": left},
        needs_engine=False,
    )


def left_text(count: int) -> str:
    """Return the sentence about workspaces that are on other machines."""
    if count == 1:
        return "1 workspace is on another host, which removes it once it is there"
    return f"{count} workspaces are on other hosts, which remove them once they are there"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def retry_failed(home: Home, name: str, *, fresh: bool = False) -> ControlResult:
    """Try a unit again, or the stopped units of a campaign. A unit may give up its conversation."""
    target = find_target(home.store, name)
    if fresh and not isinstance(target, Unit):
        raise InvalidInput(f"--fresh is for one unit; {target.name} is a campaign: name its unit as {target.name}/UNIT")
    if isinstance(target, Unit):
        is_changed = orders.retry_unit(home.store, target, fresh=fresh, now=time.time())
        message = f"{target.id} waits to be tried again" if is_changed else f"{target.id} is {target.state} already"
        values: dict[str, object] = {"unit": target.id, "retried": int(is_changed)}
        warning = _pause_warning(home, target.campaign)
        return ControlResult(message=message, values=values, needs_engine=is_changed, warning=warning)
    count = orders.retry_campaign(home.store, name, now=time.time())
    units = "1 unit waits" if count == 1 else f"{count} units wait"
    message = f"{name}: {units} to be tried again" if count else f"{name}: no unit is held, quarantined or unverified"
    values = {"campaign": name, "retried": count}
    return ControlResult(message=message, values=values, needs_engine=bool(count), warning=_pause_warning(home, name))


def _pause_warning(home: Home, campaign: str) -> str | None:
    is_paused = find_campaign(home.store, campaign).state == "paused"
    return (
        f"{campaign} is paused, so nothing of it starts; `paceline resume {campaign}` lifts that" if is_paused else None
    )


def accept(home: Home, name: str) -> ControlResult:
    """Take an unverified unit as done."""
    unit = find_unit(home.store, name)
    is_changed = orders.accept_unit(home.store, unit, now=time.time())
    message = f"{unit.id} is done: accepted without a passed check" if is_changed else f"{unit.id} is done already"
    return ControlResult(
        message=message,
        values={"unit": unit.id, "accepted": int(is_changed)},
        needs_engine=False,
        warning=_missing_delivery(home, unit) if is_changed else None,
    )


def _missing_delivery(home: Home, unit: Unit) -> str | None:
    """Return a warning about what a passed check would have delivered. The commit is there either way."""
    deliver = find_campaign(home.store, unit.campaign).deliver
    if deliver == "branch":
        return None
    if deliver == "patch":
        return f"no patch was written; `paceline diff {unit.id} > FILE` writes one"
    return f"the delivery of the plan did not run: {shlex.join(deliver)}"


# -- capacity ------------------------------------------------------------------------------------


def resize_pool(home: Home, size: str) -> ControlResult:
    limit = _parse_limit(size)
    orders.set_pool(home.store, limit, now=time.time())
    message = f"the pool is {_limit_text(limit)} sessions; running sessions are never ended for it"
    return ControlResult(message=message, values={"scope": SESSIONS, "limit": limit})


def change_limit(home: Home, scope: str, text: str) -> ControlResult:
    """Set a number, no limit, or the limit of the settings again. What was learned about the scope is forgotten."""
    if text.lower() == DEFAULT:
        scope = orders.reset_limit(home.store, home.settings, scope, now=time.time())
        return ControlResult(
            message=f"{scope} has the limit of the settings again", values={"scope": scope, "limit": DEFAULT}
        )
    limit = _parse_limit(text)
    scope = orders.set_limit(home.store, home.settings, scope, limit, now=time.time())
    return ControlResult(
        message=f"the limit of {scope} is {_limit_text(limit)}",
        values={"scope": scope, "limit": limit},
        warning=_scope_warning(home, scope),
    )


def change_rate(home: Home, scope: str, rpm: str | None, tpm: str | None) -> ControlResult:
    """Set runs and tokens in a minute. The one that is not named stays as it was set; `default` resets both."""
    if DEFAULT in (rpm, tpm):
        scope = orders.set_rate(home.store, home.settings, scope, None, now=time.time())
        return ControlResult(message=f"{scope} has the rate of the settings again", values={"scope": scope})
    known = home.offline_state(time.time()).governor.snapshot()
    present = orders.present_scope(home.settings, scope)
    before = known.rates.get(present) or known.settings.rates.get(present) or Rate()
    rate = Rate(
        rpm=before.rpm if rpm is None else _parse_limit(rpm), tpm=before.tpm if tpm is None else _parse_limit(tpm)
    )
    scope = orders.set_rate(home.store, home.settings, scope, rate, now=time.time())
    message = f"the rate of {scope} is {_limit_text(rate.rpm)} runs and {_limit_text(rate.tpm)} tokens a minute"
    values: dict[str, object] = {"scope": scope, "rpm": rate.rpm, "tpm": rate.tpm}
    return ControlResult(message=message, values=values, warning=_scope_warning(home, scope))


def _scope_warning(home: Home, scope: str) -> str | None:
    """Return a warning about a scope that nothing mentions and that is spelled almost like a known one.

    Any other unknown scope may be that of a program that asks for slots itself.
    """
    meant = orders.scope_meant(home.store, home.settings, scope)
    return None if meant is None else f'nothing that is configured uses {scope}; did you mean "{meant}"?'


def change_cooldown(home: Home, scope: str, text: str) -> ControlResult:
    if text.lower() == AUTO:
        scope = orders.set_cooldown(home.store, home.settings, scope, AUTO, now=time.time())
        message = f"the cooldown of {scope} is learned from its usage readings"
        return ControlResult(
            message=message, values={"scope": scope, "seconds": AUTO}, warning=_scope_warning(home, scope)
        )
    seconds = 0.0 if text.strip() == "0" else duration_seconds(text, "cooldown")
    scope = orders.set_cooldown(home.store, home.settings, scope, seconds, now=time.time())
    message = f"a released slot of {scope} counts for {seconds:g} s more"
    values: dict[str, object] = {"scope": scope, "seconds": seconds}
    return ControlResult(message=message, values=values, warning=_scope_warning(home, scope))


def restore(home: Home, scope: str, *, known: Sequence[str] = ()) -> ControlResult:
    """Forget what was learned about a scope, and lift a hold. Scopes in `known` are taken without a check."""
    scope = orders.restore_scope(home.store, home.settings, scope, known=known, now=time.time())
    return ControlResult(
        message=f"{scope} is back at its configured limit, and nothing holds, pauses or paces it",
        values={"scope": scope},
    )


def forget_unreadable(home: Home, now: float) -> ControlResult:
    """Set aside what the home has learnt if it cannot be read, so that an engine can begin without it."""
    with no_leader(home.path, "it stores what it has learnt by itself"):
        key = governor_state.set_aside_unreadable(home.store, governor_settings(home.settings), now)
    if key is None:
        message = "what this home has learnt can be read: nothing was changed"
        return ControlResult(message=message, values={"key": None}, needs_engine=False)
    message = f"what could not be read is kept in the database (states, key {key}); the next engine begins without it"
    return ControlResult(message=message, values={"key": key}, needs_engine=False)


def _parse_limit(text: str) -> int | None:
    if text.lower() == NONE:
        return None
    try:
        return check_limit(int(text))
    except ValueError:
        raise InvalidLimit(f"{text!r:.40} is not a limit: give a whole number of 1 or more, or none") from None


def _limit_text(limit: int | None) -> str:
    return NONE if limit is None else str(limit)
