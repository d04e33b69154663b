"""Every known refusal of a provider by name: status, headers and body in the shape of each protocol.

If a protocol does not have an error of that name, it answers with its first error of the same kind. So a script works
with every client.
"""

import msgspec

from paceline.simulation.provider.errors.anthropic import ANTHROPIC
from paceline.simulation.provider.errors.gemini import GEMINI
from paceline.simulation.provider.errors.openai import OPENAI
from paceline.simulation.provider.errors.shape import ErrorFacts, Kind, Place, ProviderError, fill, spell
from paceline.simulation.provider.protocol_module import Json, ProtocolName


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal as it is sent."""

    name: str
    kind: Kind
    status: int
    headers: dict[str, str]
    body: Json
    place: Place


TABLES: dict[ProtocolName, dict[str, ProviderError]] = {
    "anthropic": ANTHROPIC,
    "openai-chat": OPENAI,
    "openai-responses": OPENAI,
    "gemini": GEMINI,
}
NAMES = frozenset().union(*TABLES.values())


def find_error(protocol: ProtocolName, name: str) -> ProviderError:
    """Return the protocol's error of that name, or its first one of the same kind and place in the exchange."""
    table = TABLES[protocol]
    if name in table:
        return table[name]
    meant = next(other[name] for other in TABLES.values() if name in other)
    same_kind = [error for error in table.values() if error.kind == meant.kind]
    same_place = [error for error in same_kind if error.place == meant.place]
    return [*same_place, *same_kind, *table.values()][0]


def refuse(protocol: ProtocolName, name: str, facts: ErrorFacts) -> ErrorResponse:
    """Return the error of that name in the shape of `protocol`, with its numbers filled in."""
    error = find_error(protocol, name)
    values = spell(facts)
    headers = {key: str(value) for key, value in fill(error.headers, values).items()}
    return ErrorResponse(
        name=name,
        kind=error.kind,
        status=error.status,
        headers=headers,
        body=fill(error.body, values),
        place=error.place,
    )
