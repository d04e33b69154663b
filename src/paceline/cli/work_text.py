"""Tokens, dollars and spans of time as people read them. What is not known is called unknown, never 0."""

from paceline.core.values.tokens import Tokens
from paceline.store import Cost

UNKNOWN = "unknown"
NOTHING = "–"
_CENT = 0.01


def dollars(amount: float) -> str:
    """Return an amount with cents, or with two digits if it is less than a cent."""
    return f"${amount:,.2f}" if amount >= _CENT or amount == 0 else f"${amount:.2g}"


def cost_text(cost: Cost, *, is_used: bool = True) -> str:
    """Return what was billed and what is imputed. `is_used`: whether there was anything to pay for."""
    parts = []
    if cost.billed is not None:
        parts.append(f"{dollars(cost.billed)} billed")
    if cost.imputed is not None:
        parts.append(f"{dollars(cost.imputed)} imputed")
    return " + ".join(parts) or (UNKNOWN if is_used else NOTHING)


def tokens_text(tokens: Tokens | None) -> str:
    """Return the number of tokens with its parts."""
    if tokens is None:
        return UNKNOWN
    parts = [f"{tokens.input:,} input", f"{tokens.output:,} output"]
    if tokens.cache_read or tokens.cache_write:
        parts += [f"{tokens.cache_read:,} cache read", f"{tokens.cache_write:,} cache write"]
    return f"{tokens.total:,} ({', '.join(parts)})"


def lost_text(lost: int, estimated: int) -> str:
    """Return the context that was paid again after parks, and how much of it is estimated."""
    part = "" if not estimated else ", estimated" if estimated == lost else f", {estimated:,} of them estimated"
    return f"{lost:,} tokens of context paid again{part}"


def change_text(files: int | None, added: int | None, removed: int | None) -> str:
    """Return the size of a change."""
    if files is None:
        return UNKNOWN
    lines = "" if added is None or removed is None else f", +{added:,} −{removed:,} lines"
    return f"{files:,} file{'' if files == 1 else 's'}{lines}"
