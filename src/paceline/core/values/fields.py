"""Values that share fields: what is stored, and the forms of it that are sent and shown."""

from typing import Any

import msgspec


def fields_of(kind: type[msgspec.Struct], *values: object) -> dict[str, Any]:
    """Return the fields of `kind` that the values have. Where several have one, the last value counts."""
    return {name: getattr(value, name) for value in values for name in kind.__struct_fields__ if hasattr(value, name)}
