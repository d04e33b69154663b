"""The names of models that have a scope of their own. Clients choose the names, so their number needs a bound.

Here: which scope a call is counted in. Never here: limits.
"""

from paceline.core.values.scopes import canonical_scope
from paceline.protocols import scope_of

MOST_SERVED = 1000
"""Models of one account that have served a call. The largest catalogues have a few hundred."""
MOST_UNSERVED = 250
"""Names of one account that have not served a call yet: new models, and names that the provider does not know."""
OTHER_MODELS = "other"
"""The model of the scope in which further names are counted together."""


class ModelNames:
    """The names of one gateway since its start, by account."""

    def __init__(self, *, most_served: int = MOST_SERVED, most_unserved: int = MOST_UNSERVED) -> None:
        self._most_served = most_served
        self._most_unserved = most_unserved
        self._served: dict[str, set[str]] = {}
        self._unserved: dict[str, set[str]] = {}
        self._scopes: dict[tuple[str, str, str | None], str] = {}
        """The scopes of models that have served a call, by provider, account and the name as clients write it."""

    def scope(self, provider: str, account: str, model: str | None) -> str:
        """Return the scope in which calls of a model are counted."""
        known = self._scopes.get((provider, account, model))
        return known or self.counted_scope(canonical_scope(scope_of(provider, account, model)))

    def counted_scope(self, scope: str) -> str:
        """Return the scope in which calls of this canonical scope are counted: itself, or that of other models.

        A name keeps its scope once it has one, so that nobody loses what was learnt about a model.
        """
        account = scope[: scope.rfind("/")]
        if scope in self._served.get(account, ()):
            return scope
        unserved = self._unserved.setdefault(account, set())
        if scope not in unserved:
            if len(unserved) >= self._most_unserved:
                return f"{account}/{OTHER_MODELS}"
            unserved.add(scope)
        return scope

    def is_unserved(self, scope: str) -> bool:
        """Return whether a model has its scope only because clients have named it."""
        return scope in self._unserved.get(scope[: scope.rfind("/")], ())

    def note_served(self, provider: str, account: str, model: str | None) -> None:
        """Note that the provider knows the model. Its next calls have a scope of their own."""
        if (provider, account, model) in self._scopes:
            return
        scope = canonical_scope(scope_of(provider, account, model))
        name = scope[: scope.rfind("/")]
        served = self._served.setdefault(name, set())
        if scope not in served and len(served) < self._most_served:
            served.add(scope)
            self._unserved.get(name, set()).discard(scope)
        if scope in served and len(self._scopes) < self._most_served:
            self._scopes[provider, account, model] = scope
