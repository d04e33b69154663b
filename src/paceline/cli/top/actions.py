"""The orders that keys give, and what is said about them. Checks and effects are those of the commands."""

import time

from paceline.cli.commands.control import DEFAULT, end_sessions, parse_limit
from paceline.cli.wiring import Home
from paceline.engine import commands as orders
from paceline.engine.campaign_lookup import find_campaign


def pause_or_resume(home: Home, name: str) -> str:
    if find_campaign(home.store, name).state == "paused":
        orders.resume_campaigns(home.store, [name], now=time.time())
        return _told(home, f"resumed {name}")
    orders.pause_campaigns(home.store, [name], now=time.time())
    return _told(home, f"paused {name}: what runs goes on to its end")


def pause_or_resume_all(home: Home) -> str:
    """Pauses all; where all are paused already, resumes them."""
    paused = orders.pause_campaigns(home.store, None, now=time.time())
    if paused:
        return _told(home, f"paused {', '.join(paused)}: what runs goes on to its end")
    resumed = orders.resume_campaigns(home.store, None, now=time.time())
    return _told(home, f"resumed {', '.join(resumed)}") if resumed else "there is no campaign to pause"


def cancel(home: Home, name: str) -> str:
    cancelled = orders.cancel_campaign(home.store, name, now=time.time())
    if home.engine_leader() is None:
        end_sessions(home, cancelled.running)
    return f"cancelled {name}: {cancelled.units} units, of which {len(cancelled.running)} ran and are being ended"


def set_pool(home: Home, text: str) -> str:
    orders.set_pool(home.store, parse_limit(text), now=time.time())
    return _told(home, f"the pool is {text} sessions; what runs is never ended for it")


def set_limit(home: Home, scope: str, text: str) -> str:
    if text.lower() == DEFAULT:
        orders.reset_limit(home.store, scope, now=time.time())
        return _told(home, f"{scope} has the limit of the settings again")
    orders.set_limit(home.store, scope, parse_limit(text), now=time.time())
    return _told(home, f"the limit of {scope} is {text}")


def restore(home: Home, scope: str) -> str:
    orders.restore_scope(home.store, home.settings, scope, known=[scope], now=time.time())
    return _told(home, f"{scope} is back at its configured limit, and nothing holds it")


def _told(home: Home, done: str) -> str:
    return done if home.engine_leader() is not None else f"{done}. No engine runs: it takes effect when one starts"
