"""Every relative link of the docs leads to a file that exists, and every anchor to a heading."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTES = [path for folder in ("benchmarks", "tests") for path in sorted((ROOT / folder).rglob("*.md"))]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *NOTES]
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)|(?:src|srcset|href)=\"(?P<source>[^\"]+)\"")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def test_every_relative_link_leads_somewhere() -> None:
    assert [broken for page in PAGES for broken in _broken_links(page)] == []


def _broken_links(page: Path) -> list[str]:
    broken = []
    for found in LINK.finditer(FENCED.sub("", page.read_text())):
        target = found["target"] or found["source"]
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = page if not name else page.parent / name
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    return broken


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
