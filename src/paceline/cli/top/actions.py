"""The commands that the keys of `top` give, and the sentence shown for each."""

from paceline.cli import control
from paceline.cli.control import ControlResult
from paceline.cli.wiring import Home
from paceline.engine.campaign_lookup import find_campaign


def pause_or_resume(home: Home, name: str) -> str:
    if find_campaign(home.store, name).state == "paused":
        return _message(home, control.resume(home, [name]))
    return _message(home, control.pause(home, [name]))


def pause_or_resume_all(home: Home) -> str:
    """Pause all campaigns; if all are paused already, resume them."""
    paused = control.pause(home, None)
    if paused.values["campaigns"]:
        return _message(home, paused)
    resumed = control.resume(home, None)
    return _message(home, resumed) if resumed.values["campaigns"] else "there is no campaign to pause"


def cancel(home: Home, name: str) -> str:
    return _message(home, control.cancel(home, name))


def try_again(home: Home, unit: str) -> str:
    return _message(home, control.retry_failed(home, unit))


def resize_pool(home: Home, text: str) -> str:
    return _message(home, control.resize_pool(home, text))


def change_limit(home: Home, scope: str, text: str) -> str:
    return _message(home, control.change_limit(home, scope, text))


def restore(home: Home, scope: str) -> str:
    return _message(home, control.restore(home, scope, known=[scope]))


def _message(home: Home, result: ControlResult) -> str:
    if not result.needs_engine or home.engine_leader() is not None:
        return result.message
    return f"{result.message}. No engine runs: this takes effect when one starts"
