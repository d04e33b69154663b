"""The error with which the gateway answers a request itself, instead of the upstream."""

BUDGET_REACHED = "budget_reached"
"""The code of the error for a call that a budget stops."""


class GatewayError(Exception):
    """An error response of the gateway. `code` is Paceline's name for it; the message is for the client."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
