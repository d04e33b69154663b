"""`accept UNIT`: take a unit whose check did not pass as done."""

from paceline.cli.control import accept, print_result
from paceline.cli.options import AsJson, UnitName
from paceline.cli.wiring import open_home


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Take an unverified unit as done: the check of its work never passed, but you have read it."""
    with open_home() as home:
        print_result(home, accept(home, unit), as_json=as_json)
