"""The gateway's own answer, instead of the upstream's."""


class Refused(Exception):
    """`code` is Paceline's word for it; the sentence is for the client."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
