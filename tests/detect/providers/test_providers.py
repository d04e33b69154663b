"""The list of providers: each has one module and one entry, and the readers need nothing else to use a new one."""

import importlib
import json
import pkgutil
import re
import textwrap
from pathlib import Path
from typing import Any

import paceline.detect
from paceline.core.signals import Budget, Overloaded, QuotaClosed, RateLimited
from paceline.detect import Observation, StreamReader, explain, providers
from paceline.detect.parsing.headers import Headers
from paceline.detect.parsing.json_objects import Event, text_at
from paceline.detect.provider import (
    AgentCli,
    Dialect,
    EventReading,
    EventRules,
    HeaderReading,
    HeaderRules,
    Provider,
)
from paceline.detect.provider_set import ProviderSet
from paceline.detect.providers import KNOWN, PROVIDERS, generic
from paceline.detect.rules import rule
from paceline.detect.run_facts import Ending, Facts

NOW = 1_790_000_000.0


def read_busy(event: Event) -> EventReading | None:
    return EventReading(kind="overloaded", rule="acme.busy")


def read_facts(event: Event) -> Facts:
    return Facts(session_id=text_at(event, "run"), ending=Ending(ok=True) if event["type"] == "acme.done" else None)


def decide(headers: Headers, status: int | None, seen_at: float) -> HeaderReading | None:
    return HeaderReading(kind="quota", window="weekly") if headers.get("x-acme-week") == "spent" else None


def budgets(headers: Headers, seen_at: float) -> list[Budget]:
    return [Budget(used_ratio=0.5, window="weekly", source="header")] if "x-acme-week" in headers else []


ACME = Provider(
    name="acme",
    rules=(rule("acme.nap", "rate", r"acme takes a nap"),),
    events=EventRules(readers={"acme.busy": read_busy}),
    headers=HeaderRules(names=r"x-acme-week", words=frozenset({"x-acme"}), budgets=budgets, decide=decide),
    clis=(
        AgentCli(
            name="acme-cli",
            dialect=Dialect(
                quiet=frozenset({"acme.text"}),
                progress=frozenset({"acme.text"}),
                news=frozenset({"acme.busy", "acme.done"}),
                marks=frozenset({"run"}),
                read=read_facts,
            ),
        ),
    ),
)
WITH_ACME = ProviderSet((ACME, *PROVIDERS), unknown_cli=generic.UNKNOWN_CLI)


def line(**event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def test_a_sentence_of_a_new_provider_is_read_once_it_is_listed() -> None:
    seen = Observation(provider="acme-cli", channel="stderr", text="acme takes a nap", seen_at=NOW)

    assert explain(seen, providers=WITH_ACME).rules == ("acme.nap",)
    assert explain(seen).rules == ()


def test_an_event_of_a_new_provider_is_read_once_it_is_listed() -> None:
    seen = Observation(provider="acme-cli", channel="stdout-json", text='{"type": "acme.busy"}', seen_at=NOW)

    assert explain(seen, providers=WITH_ACME).signals == [Overloaded(reach="provider", confidence=0.9, source="field")]
    assert explain(seen).signals == []


def test_a_header_of_a_new_provider_is_read_once_it_is_listed() -> None:
    seen = Observation(provider="acme", channel="http", status=429, headers={"X-Acme-Week": "spent"}, seen_at=NOW)

    assert explain(seen, providers=WITH_ACME).signals == [
        QuotaClosed(window="weekly", reach="account", confidence=0.9, source="header"),
        Budget(used_ratio=0.5, window="weekly", source="header"),
    ]
    assert explain(seen).signals == [RateLimited(confidence=0.9, source="header")]


def test_a_header_of_a_new_provider_is_found_in_the_text_of_an_error() -> None:
    seen = Observation(provider="acme", channel="stderr", text="Error: 429\nx-acme-week: spent", seen_at=NOW)

    assert [type(signal) for signal in explain(seen, providers=WITH_ACME).signals] == [QuotaClosed, Budget]


def test_the_stream_of_a_new_cli_is_read_once_it_is_listed() -> None:
    reader = StreamReader("acme-cli", providers=WITH_ACME)
    output = line(type="acme.busy", run="r1") + line(type="acme.text", run="r1") + line(type="acme.done", run="r1")
    signals = reader.feed(output, channel="stdout", seen_at=NOW)
    reader.close(exit_code=0, seen_at=NOW)

    assert signals == [Overloaded(reach="provider", confidence=0.9, source="field")]
    assert (reader.session_id, reader.has_answered, reader.turns, reader.outcome) == ("r1", True, 1, "success")


def test_the_recipe_of_the_docs_works_as_it_is_printed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "detection.md").read_text("utf-8")
    (recipe,) = re.findall(r"^   ```python\n(.*?)^   ```", page, re.S | re.M)
    written: dict[str, Any] = {}
    exec(textwrap.dedent(recipe), written)
    known = ProviderSet((written["PROVIDER"], *PROVIDERS), unknown_cli=generic.UNKNOWN_CLI)
    seen = Observation(provider="acme-cli", channel="stderr", text="Your acme plan is used up.", seen_at=NOW)

    assert explain(seen, providers=known).rules == ("acme.plan-spent",)


def test_every_module_of_a_provider_has_its_entry() -> None:
    modules = [
        importlib.import_module(f"{providers.__name__}.{found.name}")
        for found in pkgutil.iter_modules(providers.__path__)
    ]

    assert {module.PROVIDER.name for module in modules} == {provider.name for provider in PROVIDERS}
    assert [module.__name__.rpartition(".")[2] for module in modules] == sorted(provider.name for provider in PROVIDERS)


def test_no_two_providers_name_one_rule_or_one_cli() -> None:
    rules = [rule.name for rule in KNOWN.rules]
    clis = [cli.name for provider in PROVIDERS for cli in provider.clis]

    assert len(rules) == len(set(rules))
    assert len(clis) == len(set(clis))


def test_no_module_but_its_own_names_a_provider() -> None:
    package = Path(paceline.detect.__file__).parent
    names = re.compile(
        "|".join([provider.name for provider in PROVIDERS if provider.name != "generic"] + ["claude"]), re.I
    )
    allowed = {"observation.py": ["openai"]}  # the default of `Observation.provider`: any API in that shape

    found = {
        file.name: names.findall(file.read_text("utf-8"))
        for file in (*package.glob("*.py"), *package.glob("parsing/*.py"))
    }

    assert {name: hits for name, hits in found.items() if hits} == allowed
