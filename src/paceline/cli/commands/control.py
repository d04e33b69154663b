"""What a person changes: `pause`, `resume`, `cancel`, `delete`, `retry`, `accept`; `pool`, `limit`, `cooldown`,
`restore`.

Here: the text of a command, what it asks of the engine, and the sentence that confirms it, for the command line and
`top` alike. Never here: checks and effects; `paceline.engine.commands` has them, also for the API.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import typer

from paceline.agents.account import split_login
from paceline.cli import output
from paceline.cli.output import argument, flag, option
from paceline.core.values.scopes import SESSIONS, ScopePattern
from paceline.core.values.settings import AUTO, Rate
from paceline.core.values.validation import LARGEST_LIMIT, check_limit
from paceline.daemon.home import Home, open_home
from paceline.engine import commands, retention
from paceline.engine.capacity import governor_state
from paceline.engine.commands import find_campaign
from paceline.errors import InvalidInput, InvalidLimit
from paceline.leadership.election import no_leader
from paceline.settings import governor_settings
from paceline.settings.checks import duration_seconds
from paceline.store import Campaign, Unit
from paceline.views.why import STAGES

DEFAULT = "default"
IsSure = Annotated[bool, flag("Do not ask.", "--yes", "-y")]


class ControlResult(msgspec.Struct, frozen=True):
    """What a command did. `message` is for people, `values` are the fields of its JSON."""

    message: str
    values: Mapping[str, object]
    needs_engine: bool = True
    """Whether it takes effect only once an engine runs."""
    warning: str | None = None


def print_result(home: Home, result: ControlResult, *, as_json: bool) -> None:
    is_running = home.engine_leader() is not None
    if as_json:
        warning = {} if result.warning is None else {"warning": result.warning}
        output.print_value({"ok": True, **result.values, **warning, "engine": "leading" if is_running else "stopped"})
        return
    output.say(result.message)
    if result.warning is not None:
        output.say(f"Warning: {result.warning}", style="yellow")
    if result.needs_engine and not is_running:
        output.say("No engine runs now: this takes effect when one starts (paceline run PLAN).", style="dim")


def _change(change: Callable[[Home], ControlResult], *, as_json: bool) -> None:
    with open_home() as home:
        print_result(home, change(home), as_json=as_json)


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
    running = [each for each in home.store.running_units() if each.phase not in STAGES] if at_turn else []
    asked = [each.id for each in running if campaigns is None or each.campaign in campaigns]
    with home.store.together():
        changed = commands.pause_campaigns(home.store, campaigns, at_turn=at_turn, now=now)
        held = [unit for unit in units if commands.pause_unit(home.store, unit, at_turn=at_turn, now=now)]
    message = _paused_text(changed, held, asked, at_turn=at_turn)
    return ControlResult(message, {"campaigns": changed, "units": [each.id for each in held], "state": "paused"})


def _paused_text(campaigns: list[str], units: list[Unit], asked: list[str], *, at_turn: bool) -> str:
    """Return what was paused. `asked` are the units of the campaigns whose sessions end at their next turn."""
    lines = []
    if campaigns:
        sessions = "running sessions end at their next turn" if at_turn else "running sessions finish"
        what = "it" if len(campaigns) == 1 else "them"
        lines.append(f"paused {', '.join(campaigns)}: {sessions}; nothing new of {what} starts")
    elif asked:
        sessions = "its session ends at its next turn" if len(asked) == 1 else "their sessions end at their next turn"
        lines.append(f"{', '.join(asked)}: {sessions}; nothing else had to be paused")
    waiting = [each.id for each in units if each.state != "running"]
    if waiting:
        lines.append(f"paused {', '.join(waiting)}: held until `paceline resume`")
    lines += [
        f"{each.id}: held once its session has ended at its next turn" for each in units if each.id not in waiting
    ]
    return "\n".join(lines) or "nothing had to be paused"


def resume(home: Home, names: list[str] | None) -> ControlResult:
    """Resume campaigns and units by name, or all campaigns."""
    campaigns, units = _targets(home, names)
    with home.store.together():
        changed = commands.resume_campaigns(home.store, campaigns, now=time.time())
        resumed = [unit.id for unit in units if commands.resume_unit(home.store, unit, now=time.time())]
    done = [*changed, *resumed]
    message = f"resumed {', '.join(done)}: units start as there is room" if done else "nothing had to be resumed"
    return ControlResult(message, {"campaigns": changed, "units": resumed, "state": "active"})


def _targets(home: Home, names: list[str] | None) -> tuple[list[str] | None, list[Unit]]:
    """Return the campaigns (None for all) and the units that the names stand for."""
    if names is None:
        return None, []
    found = [output.find_target(home.store, name) for name in names]
    return [each.name for each in found if isinstance(each, Campaign)], [x for x in found if isinstance(x, Unit)]


def cancel(home: Home, name: str) -> ControlResult:
    """Cancel a unit, or all units of a campaign that are not done.

    An engine ends the running sessions; without one they are ended here.
    """
    target = output.find_target(home.store, name)
    if isinstance(target, Unit):
        cancelled = commands.cancel_unit(home.store, target, now=time.time())
        name, values = target.id, {"units": [target.id]}
    else:
        cancelled = commands.cancel_campaign(home.store, target.name, now=time.time())
        values = {"campaigns": [target.name]}
    elsewhere = _end_sessions(home, cancelled.running) if home.engine_leader() is None else []
    return ControlResult(
        f"cancelled {name}: {_cancelled_text(cancelled, len(elsewhere))}; to undo it: paceline retry {name}",
        {**values, "cancelled": cancelled.units, "running": cancelled.running},
        needs_engine=False,
    )


def _cancelled_text(cancelled: commands.Cancelled, elsewhere: int) -> str:
    """Return what was cancelled. Without an engine nothing ends the sessions that run `elsewhere`."""
    running = len(cancelled.running)
    here = running - elsewhere
    parts = [f"{running} of them running" if running else "none of them running"]
    if here:
        parts.append(f"{'its session is' if here == 1 else 'their sessions are'} being ended")
    if elsewhere:
        continues = "1 session continues" if elsewhere == 1 else f"{elsewhere} sessions continue"
        parts.append(f"{continues} on another host until an engine runs, or the lease of the host ends")
    return f"{output.counted(cancelled.units, 'unit')}, {'; '.join(parts)}"


def _end_sessions(home: Home, unit_ids: Sequence[str]) -> list[str]:
    """End the sessions on this machine. Returns the units whose sessions are on another host."""
    elsewhere = []
    with contextlib.closing(home.executor()) as executor:
        for unit in map(home.store.unit, unit_ids):
            handle = executor.adopt(unit.attempt_id) if unit is not None and unit.attempt_id is not None else None
            if handle is not None:
                executor.stop(handle)
            elif unit is not None and split_login(unit.account or "")[1]:
                elsewhere.append(unit.id)
    return elsewhere


def delete(home: Home, name: str, *, force: bool = False) -> ControlResult:
    """Delete a campaign with its units, their workspaces, and the prompts and the output of all their attempts.

    Refused, unless `force`, while a workspace has uncommitted work. Branches that are not merged stay.
    """
    now = time.time()
    workspaces = retention.workspaces_of_campaign(home.store, name)
    if not force:
        retention.check_workspaces(workspaces)
    commands.delete_campaign(home.store, name, now=now)
    removed = retention.remove_campaign_output(home.spool(), name, now)
    folders = retention.remove_workspaces(workspaces, force=force)
    left = retention.leave_workspaces(home.store, workspaces, force=force)
    gone = f" and the output of {output.counted(removed.attempts, 'attempt')}" if removed.attempts else ""
    gone += f" and {output.counted(folders.removed, 'workspace')}" if folders.removed else ""
    stays = "".join(f"\nkept {kept.path}: {kept.reason}" for kept in folders.kept)
    stays += f"\n{output.left_text(left)}" if left else ""
    return ControlResult(
        f"deleted {name}{gone}; its name can be used again{stays}",
        {"campaign": name, "outputs": removed.attempts, "workspaces": folders, "left_to_hosts": left},
        needs_engine=False,
    )


def retry_failed(home: Home, name: str, *, fresh: bool = False) -> ControlResult:
    """Try a unit again, or the stopped units of a campaign. A unit may give up its conversation."""
    target = output.find_target(home.store, name)
    if fresh and not isinstance(target, Unit):
        raise InvalidInput(f"--fresh is for one unit; {target.name} is a campaign: name its unit as {target.name}/UNIT")
    if isinstance(target, Unit):
        is_changed = commands.retry_unit(home.store, target, fresh=fresh, now=time.time())
        message = f"{target.id} waits to be tried again" if is_changed else f"{target.id} is {target.state} already"
        values = {"unit": target.id, "retried": int(is_changed)}
        return ControlResult(message, values, is_changed, _pause_warning(home, target.campaign))
    count = commands.retry_campaign(home.store, name, now=time.time())
    units = "1 unit waits" if count == 1 else f"{count} units wait"
    message = f"{name}: {units} to be tried again" if count else f"{name}: no unit is held, quarantined or unverified"
    return ControlResult(message, {"campaign": name, "retried": count}, bool(count), _pause_warning(home, name))


def _pause_warning(home: Home, campaign: str) -> str | None:
    if find_campaign(home.store, campaign).state != "paused":
        return None
    return f"{campaign} is paused, so nothing of it starts; `paceline resume {campaign}` lifts that"


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
    commands.set_pool(home.store, limit, now=time.time())
    message = f"the pool is {output.limit_text(limit)} sessions; running sessions are never ended for it"
    return ControlResult(message, {"scope": SESSIONS, "limit": limit})


def change_limit(home: Home, scope: str, text: str) -> ControlResult:
    """Set a number, no limit, or the limit of the settings again. What was learned about the scope is forgotten."""
    if text.lower() == DEFAULT:
        scope = commands.reset_limit(home.store, home.settings, scope, now=time.time())
        return ControlResult(f"{scope} has the limit of the settings again", {"scope": scope, "limit": DEFAULT})
    limit = _parse_limit(text)
    scope = commands.set_limit(home.store, home.settings, scope, limit, now=time.time())
    message = f"the limit of {scope} is {output.limit_text(limit)}"
    return ControlResult(message, {"scope": scope, "limit": limit}, warning=_scope_warning(home, scope))


def change_rate(home: Home, scope: str, rpm: str | None, tpm: str | None) -> ControlResult:
    """Set runs and tokens in a minute. The one that is not named stays as it was set; `default` resets both."""
    if DEFAULT in (rpm, tpm):
        scope = commands.set_rate(home.store, home.settings, scope, None, now=time.time())
        return ControlResult(f"{scope} has the rate of the settings again", {"scope": scope})
    known = home.offline_state(time.time()).governor.snapshot()
    present = commands.present_scope(home.settings, scope)
    before = known.rates.get(present) or known.settings.rates.get(present) or Rate()
    rate = Rate(
        rpm=before.rpm if rpm is None else _parse_limit(rpm), tpm=before.tpm if tpm is None else _parse_limit(tpm)
    )
    scope = commands.set_rate(home.store, home.settings, scope, rate, now=time.time())
    message = (
        f"the rate of {scope} is {output.limit_text(rate.rpm)} runs and {output.limit_text(rate.tpm)} tokens a minute"
    )
    values = {"scope": scope, "rpm": rate.rpm, "tpm": rate.tpm}
    return ControlResult(message, values, warning=_scope_warning(home, scope))


def _scope_warning(home: Home, scope: str) -> str | None:
    """Return a warning about a scope that nothing mentions. A program that asks for slots itself may still use it."""
    meant = commands.scope_meant(home.store, home.settings, scope)
    if meant is not None:
        return f'nothing that is configured uses {scope}; did you mean "{meant}"?'
    return output.unused_account(home.settings, scope)


def change_cooldown(home: Home, scope: str, text: str) -> ControlResult:
    seconds: float | Literal["auto"] = AUTO
    if text.lower() != AUTO:
        seconds = 0.0 if text.strip() == "0" else duration_seconds(text, "cooldown")
    scope = commands.set_cooldown(home.store, home.settings, scope, seconds, now=time.time())
    message = f"the cooldown of {scope} is learned from its usage readings"
    if seconds != AUTO:
        message = f"a released slot of {scope} counts for {seconds:g} s more"
    return ControlResult(message, {"scope": scope, "seconds": seconds}, warning=_scope_warning(home, scope))


def restore(home: Home, scope: str, *, known: Sequence[str] = ()) -> ControlResult:
    """Forget what was learned about a scope, and lift a hold. Scopes in `known` are taken without a check."""
    scope = commands.restore_scope(home.store, home.settings, scope, known=known, now=time.time())
    lifted = "its hold, its pause and its pace end"
    if not ScopePattern(scope).is_exact:
        lifted = "pauses and paces end; holds stay, and are lifted scope by scope"
    return ControlResult(
        f"{scope} returns to its configured limit: what was learned is forgotten; {lifted}", {"scope": scope}
    )


def forget_unreadable(home: Home, now: float) -> ControlResult:
    """Set aside what the home has learnt if it cannot be read, so that an engine can begin without it."""
    with no_leader(home.path, "it stores what it has learnt by itself"):
        key = governor_state.set_aside_unreadable(home.store, governor_settings(home.settings), now)
    if key is None:
        message = "what this home has learnt can be read: nothing was changed"
        return ControlResult(message, {"key": None}, needs_engine=False)
    message = f"what could not be read is kept in the database (states, key {key}); the next engine begins without it"
    return ControlResult(message, {"key": key}, needs_engine=False)


def _parse_limit(text: str) -> int | None:
    if text.lower() == output.UNLIMITED:
        return None
    try:
        return check_limit(int(text))
    except ValueError:
        raise InvalidLimit(f"{text!r:.40} is not a limit: a whole number from 1 to {LARGEST_LIMIT}, or none") from None


def pause_command(
    target: output.Targets = None,
    everything: output.AllCampaigns = False,
    at_turn: Annotated[
        bool, flag("Also end running sessions, at their next turn. They resume later.", "--at-turn")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Start nothing more of a campaign, or hold a unit that waits. Running sessions finish."""
    names = chosen_campaigns(target or [], everything=everything)
    _change(lambda home: pause(home, names, at_turn=at_turn), as_json=as_json)


def resume_command(
    target: output.Targets = None, everything: output.AllCampaigns = False, as_json: output.AsJson = False
) -> None:
    """Let a paused campaign start units again, or a paused unit run."""
    names = chosen_campaigns(target or [], everything=everything)
    _change(lambda home: resume(home, names), as_json=as_json)


def cancel_command(
    target: output.Target,
    is_sure: IsSure = False,
    as_json: output.AsJson = False,
) -> None:
    """Give up a unit, or all units of a campaign that are not done. Running sessions are ended.

    It asks first if you are at a terminal. `paceline retry` undoes it.
    """
    with open_home() as home:
        if not is_sure and sys.stdin.isatty():
            typer.confirm(_question(home, target), abort=True)
        print_result(home, cancel(home, target), as_json=as_json)


def _question(home: Home, name: str) -> str:
    target = output.find_target(home.store, name)
    if isinstance(target, Unit):
        return f"Cancel {output.one_line(target.id)}?"
    counts = home.store.counts()[target.name]
    left = counts.todo + counts.running + counts.stopped
    return f"Cancel {output.one_line(target.name)}: {output.counted(left, 'unit')} not done, {counts.running} running?"


def delete_command(
    campaign: output.CampaignName,
    is_sure: IsSure = False,
    force: output.WithUncommitted = False,
    as_json: output.AsJson = False,
) -> None:
    """Delete a campaign with all its units, their results and their workspaces. Branches that are not merged stay.

    Refused while a unit is running: cancel it first. Refused while a workspace has uncommitted work, unless you give
    --force.
    """
    with open_home() as home:
        find_campaign(home.store, campaign)
        if not is_sure:
            if not sys.stdin.isatty():  # a program cannot answer
                lost = "all its units and their results"
                raise InvalidInput(f"deleting {campaign} removes {lost}; give --yes if you are sure")
            typer.confirm(f"Delete {output.one_line(campaign)} with all its units and their results?", abort=True)
        print_result(home, delete(home, campaign, force=force), as_json=as_json)


def retry_command(
    target: output.Target,
    fresh: Annotated[
        bool, flag("Give up the unit's conversation: it starts again, on any of its accounts.", "--fresh")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Try a unit again, or the quarantined, unverified and held units of a campaign, with their counters at zero.

    It also undoes `cancel`: a cancelled campaign is active again, with all its cancelled units.
    """
    _change(lambda home: retry_failed(home, target, fresh=fresh), as_json=as_json)


def accept_command(unit: output.UnitName, as_json: output.AsJson = False) -> None:
    """Take an unverified unit as done: the check of its work never passed, but you have read it."""
    with open_home() as home:
        found = output.find_unit(home.store, unit)
        is_changed = commands.accept_unit(home.store, found, now=time.time())
        how = ": accepted without a passed check" if is_changed else " already"
        warning = _missing_delivery(home, found) if is_changed else None
        values = {"unit": found.id, "accepted": int(is_changed)}
        result = ControlResult(f"{found.id} is done{how}", values, needs_engine=False, warning=warning)
        print_result(home, result, as_json=as_json)


def pool_command(
    size: Annotated[str, argument("N", "Number of concurrent sessions, or none for no limit.")],
    as_json: output.AsJson = False,
) -> None:
    """Set how many sessions run at once, over all campaigns. It applies at once; running sessions are never ended."""
    _change(lambda home: resize_pool(home, size), as_json=as_json)


def limit_command(
    scope: output.Scope,
    limit: Annotated[
        str | None, argument("N|none|default", "A number, none for no limit, or default for the value of the settings.")
    ] = None,
    rpm: Annotated[str | None, option("N|none|default", "How many runs may start in a minute.")] = None,
    tpm: Annotated[str | None, option("N|none|default", "How many tokens may be used in a minute.")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Set how many slots a scope may hold. The value is stored and overrides the settings until you set it to default.

    [bold]paceline limit "anthropic/*/opus-*" 2[/bold]  gives every account two opus sessions.
    [bold]paceline limit openai/work --rpm 60[/bold]  lets 60 runs start in a minute.
    """
    if limit is None and rpm is None and tpm is None:
        raise InvalidInput("name what to set: a number of slots, --rpm or --tpm")
    with open_home() as home:
        if limit is not None:
            print_result(home, change_limit(home, scope, limit), as_json=as_json)
        if rpm is not None or tpm is not None:
            print_result(home, change_rate(home, scope, rpm, tpm), as_json=as_json)


def cooldown_command(
    scope: output.Scope,
    duration: Annotated[str, argument("350ms|auto", "A duration, 0 for none, or auto to learn it.")],
    as_json: output.AsJson = False,
) -> None:
    """Set how long a released slot still counts, because the provider's own counter lags."""
    _change(lambda home: change_cooldown(home, scope, duration), as_json=as_json)


def restore_command(
    scope: Annotated[
        str | None, argument("SCOPE", "As in `paceline limits`.", autocompletion=output.complete_scope)
    ] = None,
    unreadable: Annotated[
        bool, flag("Set aside a stored state that cannot be read, and begin without it.", "--unreadable")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Return a scope to its configured limit: forget what was learned about it, and lift a hold.

    After a refused login or a billing stop an account is held until a person has fixed the cause. Run this once it is
    fixed.
    """
    if unreadable == (scope is not None):
        raise InvalidInput("name a scope, or give --unreadable")
    with open_home() as home:
        result = forget_unreadable(home, time.time()) if scope is None else restore(home, scope)
        print_result(home, result, as_json=as_json)
