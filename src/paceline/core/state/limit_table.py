"""Tables of what is configured by scope or pattern.

Values come in two layers: those of the settings, and those a person set live, which win until they are reset.
Never here: learnt limits (`limits/`).
"""

from typing import Generic, TypeVar

from paceline.core.values.scopes import ScopePattern, is_provider_scope, is_unnamed_model
from paceline.core.values.settings import Rate
from paceline.core.values.validation import check_limit

UNLIMITED = 1 << 60
"""Stands for no limit where numbers are compared: more than can ever be counted, and still a small integer."""
Value = TypeVar("Value")


class PatternTable(Generic[Value]):
    """Values by scope or pattern. Of overlapping patterns the most specific wins."""

    def __init__(self, settings: dict[str, Value], live: dict[str, Value]) -> None:
        self.settings = {ScopePattern(text).text: value for text, value in settings.items()}
        self.live = dict(live)
        self._order()

    def set_live(self, text: str, value: Value) -> None:
        self.live[ScopePattern(text).text] = value
        self._order()

    def reset_live(self, text: str) -> None:
        self.live.pop(ScopePattern(text).text, None)
        self._order()

    def lookup(self, scope: str) -> tuple[str, Value] | None:
        """Return the entry that applies to the scope: its pattern and value."""
        if scope in self._merged:
            return scope, self._merged[scope]
        if is_unnamed_model(scope) and (strictest := self._strictest(scope)) is not None:
            return strictest
        for pattern in self._wildcards:
            if pattern.matches(scope):
                return pattern.text, self._merged[pattern.text]
        return None

    def _strictest(self, scope: str) -> tuple[str, Value] | None:
        """Return the strictest entry for models of the account, for a slot that names no model."""
        account = scope.rpartition("/")[0]
        entries = [(pattern.text, self._merged[pattern.text]) for pattern in self._patterns_for_models(account)]
        return min(entries, key=lambda entry: self.strictness(entry[1]), default=None)

    def strictness(self, value: Value) -> float:
        """Return a number that is smaller for a stricter value. Here all values are alike."""
        return 0.0

    def _patterns_for_models(self, path: str) -> list[ScopePattern]:
        return [
            pattern
            for pattern in self._patterns
            if self._merged[pattern.text] is not None and pattern.matches_account_of(path)
        ]

    def lookup_path(self, scope: str) -> Value | None:
        """Return the value of the scope, else of the path it lies in."""
        found = self.entry_on_path(scope)
        return None if found is None else found[1]

    def entry_on_path(self, scope: str) -> tuple[str, Value] | None:
        """Return the entry that applies to the scope, else to the path it lies in."""
        while (found := self.lookup(scope)) is None:
            if "/" not in scope:
                return None
            scope = scope.rsplit("/", 1)[0]
        return found

    def entries(self) -> dict[str, Value]:
        return dict(self._merged)

    def model_needed(self, scopes: tuple[str, ...]) -> tuple[str, str] | None:
        """Return a provider path that lacks a model although caps per model apply to it, and such a cap."""
        paths = [scope for scope in scopes if is_provider_scope(scope)]
        for path in paths:
            if path.count("/") < 2 and not any(other.startswith(path + "/") for other in paths):
                for pattern in self._patterns_for_models(path):
                    return path, pattern.text
        return None

    def _order(self) -> None:
        self._merged = {**self.settings, **self.live}
        self._patterns = [ScopePattern(text) for text in self._merged]
        wildcards = [pattern for pattern in self._patterns if not pattern.is_exact]
        self._wildcards = sorted(wildcards, key=lambda pattern: pattern.specificity, reverse=True)


class LimitTable(PatternTable[int | None]):
    """Configured limits. An entry of None means: explicitly unlimited."""

    def strictness(self, value: int | None) -> float:
        return UNLIMITED if value is None else value

    def configured(self, scope: str) -> int | None:
        found = self.lookup(scope)
        return found[1] if found else None

    def ruling_entry(self, scope: str) -> tuple[str, bool] | None:
        """Return the name or pattern that the scope's limit comes from, and whether it was set live."""
        found = self.lookup(scope)
        return None if found is None else (found[0], found[0] in self.live)

    def set(self, text: str, limit: int | None) -> None:
        self.set_live(text, check_limit(limit))

    def remove(self, text: str) -> None:
        """Make the scope unlimited. An entry is kept only where another one would take its place."""
        self.reset_live(text)
        if self.lookup(ScopePattern(text).text) is not None:
            self.set_live(text, None)


class RateTable(PatternTable[Rate]):
    """Configured rates."""

    def strictness(self, value: Rate) -> float:
        """Compare by runs per minute, and only rates without them by tokens."""
        return value.rpm if value.rpm is not None else UNLIMITED + (value.tpm or 0)


def smallest(*limits: int | None) -> int | None:
    """Return the smallest known limit, never below 1; None where none is known."""
    known = [limit for limit in limits if limit is not None]
    return max(1, min(known)) if known else None
