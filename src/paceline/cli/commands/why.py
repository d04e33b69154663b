"""`why UNIT`: what holds it, since when, until when, and what a person can do about it; also for a call."""

import time
from urllib.parse import quote

import msgspec
from rich.text import Text

from paceline.cli.call_text import tokens_text
from paceline.cli.limit_text import learnt_text
from paceline.cli.live_state import asking
from paceline.cli.options import AsJson, UnitName
from paceline.cli.output import one_line, out, print_value
from paceline.cli.time_text import moment
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import Home, open_home
from paceline.cli.work_text import cost_text
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import UnknownName
from paceline.views.gateway_calls import GatewayRequest
from paceline.views.why import Why


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what holds a unit, since when, until when, and what you can do about it.

    For a call of the gateway, give the x-paceline-request-id of its answer, or an id that the page lists.
    """
    with open_home() as home:
        try:
            found = find_unit(home.store, unit)
        except UnknownName:
            if (call := _find_call(home, unit)) is None:
                raise
            print_value(call) if as_json else _print_call(call, home)
            return
        first, *others = home.explain_unit(found, find_campaign(home.store, found.campaign))
        if as_json:
            print_value({**msgspec.to_builtins(first), "others": others} if others else first)
            return
        for each in (first, *others):
            _print_why(each, home)


def _find_call(home: Home, name: str) -> GatewayRequest | None:
    """Return the call of the gateway that the daemon knows by this id."""
    if not name.startswith("req-"):
        return None
    with asking(home) as ask:
        answer = None if ask is None else ask(f"/v1/gateway/requests/{quote(name, safe='')}")
    return None if answer is None else answer.decoded(GatewayRequest)


def _print_call(call: GatewayRequest, home: Home) -> None:
    if call.status is None:
        state = "runs" if call.reason is None else f"waits: {call.reason}"
    else:
        state = f"answered with {call.status}{'' if call.reason is None else f': {call.reason}'}"
    facts = [
        ("scope", call.scope),
        ("model", call.model),
        ("key", call.key),
        ("until", None if call.retry_at is None else moment(call.retry_at, time.time(), home.zone)),
        ("waited", f"{call.waited_seconds:.2f} s of {call.seconds:.2f} s"),
        ("tokens", None if call.tokens is None else tokens_text(call.tokens)),
        ("cost", None if call.tokens is None else cost_text(call.cost)),
    ]
    out().print(Text.assemble((f"{call.id} ", "bold"), one_line(state, 400)))
    for label, value in facts:
        if value is not None:
            out().print(Text.assemble((f"  {label:<7}", "dim"), one_line(value, 300)))


def _print_why(why: Why, home: Home) -> None:
    console, now = out(), time.time()
    console.print(Text.assemble((f"{why.unit} is {why.state}: ", "bold"), one_line(why.detail, 400)))
    learnt = None if why.learnt is None else learnt_text(why.learnt, now)
    facts = (("scope", why.scope), ("limit", learnt), ("since", why.since), ("until", why.until), ("to do", why.hint))
    for label, value in facts:
        if value is not None:
            shown = moment(value, now, home.zone) if isinstance(value, float) else value
            console.print(Text.assemble((f"  {label:<7}", "dim"), one_line(shown, 300)))
