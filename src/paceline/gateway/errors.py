"""The error with which the gateway answers a request itself, instead of the upstream."""

BUDGET_REACHED = "budget_reached"
"""The code of the error for a call that a budget stops."""
BUDGET_IN_USE = "budget_in_use"
"""The same if the budget has room again once calls that run have ended."""


class GatewayError(Exception):
    """An error response of the gateway. `code` is Paceline's name for it; the message is for the client."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class BudgetError(GatewayError):
    """The answer if a budget stops a call. `scope` is that of the key or account whose budget it is."""

    def __init__(self, status: int, code: str, message: str, scope: str, *, retry_after: float | None = None) -> None:
        super().__init__(status, code, message, retry_after=retry_after)
        self.scope = scope
        self.is_of_choice = False
        """Whether it is about the account of a pool that was chosen, so that another one may serve the call."""
