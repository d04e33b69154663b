"""`python -m tests.tidy` shrinks the allow-list; `--accept` also adds what is over a bar now.

`--warn` only prints what is larger than usual; `make lint` does it.
"""

import sys

from tests.tidy import checks, prose, ratchet


def main(arguments: list[str]) -> None:
    """Write the allow-list and the layer list of CONTRIBUTING.md, and print the entries of each check."""
    if "--warn" in arguments:
        print(*checks.warnings(), sep="\n")
        return
    contributing = checks.REPOSITORY / "CONTRIBUTING.md"
    text, pyproject = contributing.read_text("utf-8"), (checks.REPOSITORY / "pyproject.toml").read_text("utf-8")
    if (new := prose.with_layers(text, pyproject)) != text:
        contributing.write_text(new, "utf-8")
    before = checks.ALLOWED.read_text("utf-8") if checks.ALLOWED.exists() else ""
    reports = checks.run_all()
    allowed = ratchet.updated(reports, ratchet.read(before), accept="--accept" in arguments)
    checks.ALLOWED.write_text(ratchet.write(allowed, before), "utf-8")
    for check, entries in allowed.items():
        print(f"{check:26}{len(entries):5} entries, sum {sum(entries.values())}")


if __name__ == "__main__":
    main(sys.argv[1:])
