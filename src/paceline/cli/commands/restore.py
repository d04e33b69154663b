"""`restore`: a scope back at its configured limit."""

from paceline.cli.control import print_result, restore
from paceline.cli.options import AsJson, Scope
from paceline.cli.wiring import open_home


def command(scope: Scope, as_json: AsJson = False) -> None:
    """Return a scope to its configured limit: forget what was learned about it, and lift a hold.

    After a refused login or a billing stop an account is held until a person has fixed the cause. Run this once it is
    fixed.
    """
    with open_home() as home:
        print_result(home, restore(home, scope), as_json=as_json)
