"""`show UNIT`: what a unit did: its answer, its checks, its change and its cost."""

from paceline.cli.options import AsJson, UnitName
from paceline.cli.output import STATE_STYLES, one_line, print_value, say
from paceline.cli.time_text import span_text
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import open_home
from paceline.cli.work_text import change_text, cost_text, lost_text, tokens_text
from paceline.engine.unit_results import this_host
from paceline.store import CheckRound
from paceline.views.units import UnitView, phase_of, unit_view


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what a unit did: its final answer, its checks, its change, its tokens and its cost, over all attempts."""
    with open_home() as home:
        found = find_unit(home.store, unit)
        view, phase = unit_view(found), phase_of(found)
    if as_json:
        print_value(view)
        return
    doing = f" ({view.phase})" if view.phase is not None else ""
    say(f"{view.id} is {phase}{doing}", style=f"bold {STATE_STYLES.get(phase, '')}".strip())
    for name, value in _facts(view):
        say(f"  {name:<10}{value}")
    for number, check in enumerate(view.checks, 1):
        say("")
        say(f"Check {number}: {_verdict(check)} after {span_text(check.seconds)}", style="bold")
        if check.tail:
            say(check.tail.rstrip())
    if view.answer is not None:
        say("")
        say("Answer", style="bold")
        say(view.answer)
    elif view.tries:
        say("")
        say(f"It has no answer; paceline logs {view.id} shows its last output.", style="dim")


def _facts(view: UnitView) -> list[tuple[str, str]]:
    has_worked = view.ran_seconds > 0 or view.tokens is not None
    agent = " ".join(filter(None, (view.agent, view.model, view.account and f"on {view.account}")))
    worker = ", ".join(filter(None, (agent, view.host and f"host {view.host}")))
    facts = [("reason", one_line(view.reason)), ("agent", worker)]
    if has_worked and view.agent != "command":
        facts += [
            ("tokens", tokens_text(view.tokens)),
            ("cost", cost_text(view.cost)),
            ("context", "" if view.context_tokens is None else f"{view.context_tokens:,} tokens"),
            ("turns", "unknown" if view.turns is None else f"{view.turns:,}"),
        ]
    if has_worked:
        parked = f", {span_text(view.parked_seconds)} of it parked" if view.parked_seconds else ""
        facts.append(("time", f"worked {span_text(view.ran_seconds)}, waited {span_text(view.waited_seconds)}{parked}"))
    if view.lost_tokens:
        facts.append(("parking", lost_text(view.lost_tokens, view.lost_tokens_estimated)))
    if view.files_changed is not None:
        facts.append(("change", change_text(view.files_changed, view.lines_added, view.lines_removed)))
    where = f" (on {view.host})" if view.host not in (None, this_host()) else ""
    facts.append(("workspace", f"{view.workspace}{where}" if view.workspace else ""))
    facts += [
        ("branch", view.branch or ""),
        ("commit", view.commit or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _verdict(check: CheckRound) -> str:
    if check.reason is not None:
        return one_line(check.reason)
    return "passed" if check.exit_code == 0 else f"failed (exit code {check.exit_code})"
