"""`python -m paceline` is the `paceline` command."""

from paceline.cli import main

main()
