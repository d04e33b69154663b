"""Detection: from what was seen to signals. Pure: no clock, no I/O, no asyncio.

`detect` returns what an observation means, `explain` also names the rules that fired. `StreamReader` reads the
output of an agent as it arrives. They know all agent CLIs, each of which has a folder in `paceline.agents`; so they
are imported on use. Here is what reads limits:

- `observation`: what was seen, what it may mean, and its reading
- `observation_reader`: events first, then the text with its headers and fields; which limit it is, and when it ends
- `provider`: the form in which a provider is described, its rules, and which one wins
- `shared_rules`: what most providers share, and services without a CLI
- `grammar`, `lexicon`: limits as statements, for the sentences that no rule has, and the words in them
- `prefilter`: the words without which no rule can match
- `fields`, `json_objects`, `times`: parsers; `text`: readable text, and the lines in it that are the CLI's own
"""

from typing import TYPE_CHECKING

from paceline.detect.observation import Observation, Reading
from paceline.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from paceline.agents.known import detect, explain
    from paceline.agents.stream.reader import StreamReader, compile_patterns

__all__ = ["Observation", "Reading", "StreamReader", "compile_patterns", "detect", "explain"]

__getattr__ = lazy_exports(
    __name__,
    {
        "StreamReader": "paceline.agents.stream.reader",
        "compile_patterns": "paceline.agents.stream.reader",
        "detect": "paceline.agents.known",
        "explain": "paceline.agents.known",
    },
)
