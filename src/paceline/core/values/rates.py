"""A configured rate: how many runs and how many tokens may start in any minute."""

import msgspec

from paceline.core.values.validation import check_limit
from paceline.errors import InvalidLimit


class Rate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many runs and how many tokens may start in a minute; None means any number."""

    rpm: int | None = None
    tpm: int | None = None


def check_rate(value: object, name: str) -> Rate:
    """Return a `Rate` from one, or from a dict with its fields."""
    if isinstance(value, Rate):
        fields = msgspec.structs.asdict(value)
    elif isinstance(value, dict) and value.keys() <= set(Rate.__struct_fields__):
        fields = value
    else:
        raise InvalidLimit(f"{name} must be a Rate, or a dict with rpm, tpm or both; got {value!r:.80}")
    return Rate(**{key: check_limit(number, f"{name}.{key}") for key, number in fields.items()})
