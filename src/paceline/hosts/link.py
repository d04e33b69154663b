"""The connection of a worker to the leader: what it can ask for."""

from pathlib import Path
from typing import Protocol

from paceline.hosts.messages import Joined, JoinRequest, Orders, OrdersRequest, Reports, ReportsTaken


class Link(Protocol):
    """Requests of one worker. Each raises `LinkDown` if no leader answers, and `NotJoined` if the joining is over.

    `Refused` means that asking again does not help: the token is not valid, or the versions do not fit.
    """

    async def join(self, request: JoinRequest) -> Joined: ...

    async def orders(self, request: OrdersRequest) -> Orders: ...

    async def report(self, reports: Reports) -> ReportsTaken: ...

    async def fetch_commits(self, joining: str, call_id: str, have: tuple[str, ...], file: Path) -> None:
        """Write a git bundle to `file`, with the commits that the call needs and that are not in `have`."""

    async def send_commits(self, joining: str, call_id: str, file: Path) -> None:
        """Send the leader a git bundle with what came of the call."""
