"""What a person sets: limits, cooldowns, headroom and holds. One half of the Governor's verbs."""

from paceline.core.decisions.admission import settle
from paceline.core.decisions.reactions import hold
from paceline.core.decisions.time_effects import move_to
from paceline.core.gates.window_budget import Pace
from paceline.core.state.fairness import lift_blocked
from paceline.core.state.ledger import Books
from paceline.core.state.scope import cooldown_seconds
from paceline.core.values.scopes import ScopePattern, canonical_scope, is_provider_scope
from paceline.core.values.settings import Cooldown, HeadroomMode, check_cooldown, check_headroom


class Steering:
    """Takes effect at once; what is set live wins over the settings until it is reset."""

    books: Books

    # -- limits ------------------------------------------------------------------------------

    def set_limit(self, scope: str, limit: int | None, *, now: float) -> None:
        """Set a scope's or pattern's limit by hand; what was learnt there is forgotten."""
        pattern = ScopePattern(scope)
        move_to(self.books, now)
        self.books.limits.set(pattern.text, limit)
        self._apply_limits(pattern)

    def remove_limit(self, scope: str, *, now: float) -> None:
        """Unlimited from now on: waiters enter, live slots stay counted, pauses stay."""
        pattern = ScopePattern(scope)
        move_to(self.books, now)
        self.books.limits.remove(pattern.text)
        self._apply_limits(pattern)

    def reset_limit(self, scope: str, *, now: float) -> None:
        """Forget what was set live: the settings rule again."""
        pattern = ScopePattern(scope)
        move_to(self.books, now)
        self.books.limits.reset_live(pattern.text)
        self._apply_limits(pattern)

    def restore_limit(self, scope: str, *, now: float) -> None:
        """Back to the configured limit: forget what refusals taught, rates and the spacing of starts as well."""
        pattern = ScopePattern(scope)
        move_to(self.books, now)
        for state in self.books.scopes.values():
            if pattern.matches(state.name):
                state.pacer, state.learnt_rates = None, {}
        self._apply_limits(pattern)

    def get_limit(self, scope: str) -> int | None:
        """The configured limit of a scope, or of a pattern as it was set."""
        return self.books.limits.configured(ScopePattern(scope).text)

    def limits(self) -> dict[str, int]:
        """Every configured limit, by scope or pattern."""
        return {text: limit for text, limit in self.books.limits.entries().items() if limit is not None}

    def ruling_limit(self, scope: str) -> tuple[str, bool] | None:
        """The entry that the scope's configured limit comes from: its name or pattern, and whether it was set live."""
        found = self.books.limits.lookup(canonical_scope(scope))
        return None if found is None else (found[0], found[0] in self.books.limits.live)

    def _apply_limits(self, pattern: ScopePattern) -> None:
        books = self.books
        books.forget_lanes()
        touched = [scope for scope in books.scopes.values() if pattern.matches(scope.name)]
        if pattern.is_exact and not touched:
            touched = [books.scope(pattern.text)]
        for scope in touched:
            previous = scope.effective
            scope.configured = books.limits.configured(scope.name)
            if scope.headroom is not None:
                scope.headroom.clear()
            scope.platform = None
            scope.refresh()
            lift_blocked(books, scope)
            books.schedule(scope)
            if scope.effective != previous:
                books.emit("scope.limit_set", scope.name, limit=scope.effective, previous=previous)
        settle(books, touched)

    # -- cooldown, headroom, hold ----------------------------------------------------------

    def set_cooldown(self, scope: str, cooldown: Cooldown, *, now: float) -> None:
        """How long a released slot still counts. Slots that cool already keep the cooldown they began with."""
        pattern = ScopePattern(scope)
        checked = check_cooldown(cooldown, "cooldown")
        move_to(self.books, now)
        self.books.cooldowns.set_live(pattern.text, checked)
        for state in self.books.scopes.values():
            state.cooldown_setting = self.books.cooldown_of(state.name)
            state.refresh()

    def get_cooldown(self, scope: str) -> float:
        """In seconds, as it is now; of a pattern, as a scope that matches it would begin."""
        text = ScopePattern(scope).text
        known = self.books.scopes.get(text)
        if known is not None:
            return known.cooldown
        return cooldown_seconds(is_provider_scope(text), self.books.cooldown_of(text), None)

    def cooldowns(self) -> dict[str, Cooldown]:
        return self.books.cooldowns.entries()

    def set_headroom(self, scope: str, mode: HeadroomMode, *, now: float) -> None:
        """How the limit of a scope, or of all that match a pattern, reacts to refusals."""
        pattern = ScopePattern(scope)
        checked = check_headroom(mode, "headroom")
        move_to(self.books, now)
        self.books.modes.set_live(pattern.text, checked)
        for state in self.books.scopes.values():
            state.mode = self.books.mode_of(state.name)

    def set_pace(self, scope: str, pace: Pace | None, *, now: float) -> None:
        """Admit no more at once than the pace says, until it is set again; nothing that runs is ended."""
        move_to(self.books, now)
        state = self.books.scope(canonical_scope(scope))
        if state.pace != pace:
            state.pace = pace
            state.refresh()
            self.books.schedule(state)
            settle(self.books, [state])

    def hold(self, scope: str, detail: str, *, now: float) -> None:
        """Admit nobody to the scope until a person lifts it."""
        move_to(self.books, now)
        settle(self.books, hold(self.books, canonical_scope(scope), detail))

    def lift_hold(self, scope: str, *, now: float) -> None:
        move_to(self.books, now)
        state = self.books.scope(canonical_scope(scope))
        state.hold = None
        state.refresh()
        lift_blocked(self.books, state)
        settle(self.books, [state])
