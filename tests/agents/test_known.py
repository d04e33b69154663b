"""The lists of providers and CLIs: each has a folder and an entry, and the readers need nothing else for a new one."""

import importlib
import json
import pkgutil
import re
import textwrap
from pathlib import Path
from typing import Any

import paceline.agents
import paceline.detect
from paceline.agents import agent_names
from paceline.agents.dialect import AgentCli, Dialect, Ending, Facts
from paceline.agents.known import AGENT_CLIS, LIMITS, PROVIDERS, CliSet
from paceline.agents.other_clis import UNKNOWN_CLI
from paceline.core.signals import Budget, Overloaded, QuotaClosed, RateLimited
from paceline.detect import Observation, StreamReader, explain
from paceline.detect.fields import Headers
from paceline.detect.json_objects import Event, text_at
from paceline.detect.provider import (
    LimitReading,
    Provider,
    ProviderSet,
    rule,
)

NOW = 1_790_000_000.0


def read_busy(event: Event) -> LimitReading | None:
    return LimitReading(kind="overloaded", rule="acme.busy")


def read_facts(event: Event) -> Facts:
    return Facts(session_id=text_at(event, "run"), ending=Ending(ok=True) if event["type"] == "acme.done" else None)


def decide(headers: Headers, status: int | None, seen_at: float) -> LimitReading | None:
    return LimitReading(kind="quota", window="weekly") if headers.get("x-acme-week") == "spent" else None


def budgets(headers: Headers, seen_at: float) -> list[Budget]:
    return [Budget(used_ratio=0.5, window="weekly", source="header")] if "x-acme-week" in headers else []


ACME = Provider(
    name="acme",
    rules=(rule("acme.nap", "rate", r"acme takes a nap"),),
    events={"acme.busy": read_busy},
    headers=r"x-acme-week",
    header_words=frozenset({"x-acme"}),
    budgets=budgets,
    decide=decide,
)
ACME_CLI = AgentCli(
    name="acme-cli",
    dialect=Dialect(
        quiet=frozenset({"acme.text"}),
        progress=frozenset({"acme.text"}),
        news=frozenset({"acme.busy", "acme.done"}),
        marks=frozenset({"run"}),
        read=read_facts,
    ),
)
WITH_ACME = ProviderSet((ACME, *PROVIDERS))


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
    clis = CliSet((ACME_CLI, *AGENT_CLIS), unknown=UNKNOWN_CLI, limits=WITH_ACME)
    reader = StreamReader("acme-cli", clis=clis)
    output = line(type="acme.busy", run="r1") + line(type="acme.text", run="r1") + line(type="acme.done", run="r1")
    signals = reader.feed(output, channel="stdout", seen_at=NOW)
    reader.close(exit_code=0, seen_at=NOW)

    assert signals == [Overloaded(reach="provider", confidence=0.9, source="field")]
    assert (reader.session_id, reader.has_answered, reader.turns, reader.outcome) == ("r1", True, 1, "success")


def test_the_recipe_of_the_docs_works_as_it_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "detection.md").read_text("utf-8")
    (recipe,) = re.findall(r"^   ```python\n(.*?)^   ```", page, re.S | re.M)
    written: dict[str, Any] = {}
    exec(textwrap.dedent(recipe), written)
    known = ProviderSet((written["PROVIDER"], *PROVIDERS))
    seen = Observation(provider="acme-cli", channel="stderr", text="Your acme plan is used up.", seen_at=NOW)

    assert explain(seen, providers=known).rules == ("acme.plan-spent",)


def test_every_folder_of_a_cli_that_has_a_dialect_is_listed() -> None:
    folders = [found.name for found in pkgutil.iter_modules(paceline.agents.__path__) if found.ispkg]
    modules = [importlib.import_module(f"paceline.agents.{name}") for name in folders if name != "stream"]

    assert {cli.name for module in modules for cli in module.CLIS} <= {cli.name for cli in AGENT_CLIS}
    assert all(module.PROVIDER in PROVIDERS for module in modules if hasattr(module, "PROVIDER"))
    assert {name for name in folders if name != "stream"} <= set(agent_names())


def test_no_two_providers_name_one_rule_or_one_cli() -> None:
    rules = [rule.name for rule in LIMITS.rules]
    clis = [cli.name for cli in AGENT_CLIS]

    assert len(rules) == len(set(rules))
    assert len(clis) == len(set(clis))


def test_no_module_but_its_own_names_a_provider() -> None:
    detect, agents = Path(paceline.detect.__file__).parent, Path(paceline.agents.__file__).parent
    names = re.compile(
        "|".join([*(cli for cli in agent_names() if cli != "command"), "anthropic", "cursor", "openai"]), re.I
    )
    own = {"shared_rules.py"}
    allowed = {"observation.py": ["openai"], "reader.py": ["claude"]}  # defaults, and what patterns are compiled with

    found = {
        file.name: names.findall(file.read_text("utf-8"))
        for file in (*detect.glob("*.py"), *agents.glob("stream/*.py"), agents / "dialect.py")
        if file.name not in own
    }

    assert {name: hits for name, hits in found.items() if hits} == allowed
