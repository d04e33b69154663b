"""The channels on which a session prints."""

from typing import Literal

Channel = Literal["stdout", "stderr", "screen"]
