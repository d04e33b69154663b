"""A text made readable: colours, boxes, padding, escapes and odd punctuation removed, strangers' lines left out.

Here: cleaning, and telling the CLI's own lines from code, test logs, panels and tools. Never here:
what a sentence means.
"""

import re

WRAP = "\x1f"  # where a wrapped line was joined: white space to every pattern, yet no end of a line
SOFT = "\x1e"  # begins a line that is an agent's bullet, a list item or a tool's result
HEAD = 12_000  # a limit stands at the beginning of an error or at the end of a screen;
TAIL = 12_000  # what lies between in a huge text is not looked at, so that time stays bounded

_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]")
_ODD = str.maketrans(
    {
        "’": "'", "‘": "'", "ʼ": "'", "′": "'", "“": '"', "”": '"', "∙": "·", "•": "·", "・": "·", "‧": "·", "⋅": "·",
        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2007": " ", "\u3000": " ", "\t": " ", "\u200b": None,
        "\u200c": None, "\u200d": None, "\ufeff": None, "\u2060": None, "\u00ad": None, "\x00": None,
        "‑": "-", "‐": "-",
        "（": "(", "）": ")", "：": ":", "，": ", ", "。": ". ", "！": "!", "；": ";", "［": "[", "］": "]", "｜": "|",
        "\r": "\n", "\x0b": "\n", "\x0c": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n", "…": "...",
    }
)  # fmt: skip
_BOX = re.compile(r"[\u2500-\u259f]+")
# Borders, bullets and prompts at the edges of a line: chrome of a screen, quoting of a log.
_EDGE_LEFT = re.compile(r"""^[^\w"'(){}\[\]<$/\\#+~.@&`:=-]{1,200}""")
# An agent's bullet or a list: its words are prose, so only its first words can be the CLI's own.
_BULLET = re.compile(r"^\s{0,12}(?:[⏺●•·]|[-*]\s|\d{1,2}[.)]\s|⎿)")
_OWN_START = re.compile(r"API Error\b|Error: [45]\d\d\b")
_INNER_START = re.compile(r"(?<=[a-z])[.:;!?)] ?(?=\s)|(?<=\w)\s[-–—](?=\s)")
_TOOL_ERROR = re.compile(r"^\s{0,12}⎿\s{0,4}(?:error|fatal|warning)\b[: ](?!.{0,40}\"type\")", re.I)
_JS_JOIN = re.compile(r"""(?:\\n)?['"]\s?\+\s{0,400}['"]?""")
_SPACES = re.compile(r" {2,}")
_ESCAPE = re.compile(r"\\{1,16}(?:u([0-9a-fA-F]{4})|([nrt\"'/]))")
_BARE = {"n": "\n", "r": "\n", "t": " "}


def decoded(value: object) -> str:
    """Any value as text; bytes as UTF-8 with what is invalid replaced."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def shortened(text: str) -> str:
    """Head and tail of a huge text."""
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]}\n{text[-TAIL:]}"


def unescaped(text: str) -> str:
    """Text from inside JSON strings, however deep: `\\\\n`, `\\"`, `\\u2019`."""
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        if match[1]:
            code = int(match[1], 16)
            return chr(code) if not 0xD800 <= code <= 0xDFFF else ""
        return _BARE.get(match[2], match[2])

    return _ESCAPE.sub(plain, text)


def cleaned(text: str) -> str:
    """The readable text: one line per line, no colours, no borders, no padding, plain punctuation."""
    text = _ANSI.sub("", text).translate(_ODD)
    text = unescaped(text)
    lines: list[str] = []
    for raw in text.split("\n"):
        if _TOOL_ERROR.match(raw):
            continue
        line = _BOX.sub(" ", raw).strip(" |")
        bare = _SPACES.sub(" ", _EDGE_LEFT.sub("", line))
        if _BULLET.match(raw) and not _OWN_START.match(bare):
            bare = SOFT + bare
        if lines and bare and _continues(lines[-1], line, bare):
            lines[-1] = f"{lines[-1]}{WRAP}{bare}"
        else:
            lines.append(bare)
    return _JS_JOIN.sub(" ", "\n".join(lines))


def _continues(previous: str, line: str, bare: str) -> bool:
    """Whether a line is the rest of a wrapped one: it begins in the middle of a sentence."""
    return (
        bare[0] != SOFT
        and line[:1] == bare[:1]
        and bare[0].islower()
        and bool(previous)
        and previous[-1] not in ".!?:;)}]\"'`"
    )


def glued(text: str) -> str:
    """The text with its line breaks taken out, for words that a narrow terminal broke in two."""
    return text.replace("\n", "").replace(WRAP, "")


# --- whose words -----------------------------------------------------------------------------

# Meters: something is counted, nothing was hit.
_METER = re.compile(
    r"\d\s?%\s?(?:left|used|remaining|of\b|\(resets)|(?:usage|limit|session|weekly|monthly|details|wk|5h|7d|ctx):\s{0,20}(?:\[[^\]]{0,80}\]\s?)?\d{1,3}(?:\.\d)?\s?%"
    r"|\$[\d.]+(?:/\$[\d.]+)?\sremaining",
    re.I,
)
_HIT = re.compile(r"\b(?:reached|hit|exceeded|exhausted|out of|used 100% of)\b", re.I)
# Code, diffs, tests and searches: the words are there, but nobody says them.
_CODE = re.compile(
    r"""^(?:(?![45]\d\d:\s\w)\d{1,6}(?:\s?[|+:]|\s-)\s|[+-]{1,3}\s?\S.{0,400}[;{(,]$|@@\s|diff\s--git|\#!|//|/\*|\*\s@|```)
    |\b(?:console\.(?:log|error|warn)|logger\.\w{1,12}|log\.\w{1,12}|print(?:f|ln)?|includes|match(?:es)?|expect|test|describe|it|re\.compile|mock\w{0,20})\(
    |\b(?:throw\snew|raise|new)\s\w{1,60}\(|\bassert\w{0,20}[\s(]\S|\bside_effect\b
    |\b(?:def|fn|func|function|class)\s\w{1,80}\s?[(:{]
    |^(?:const|let|var|import|from\s\S{1,80}\simport|export|async|pub|impl|elif|return|self\.|await)\b.{0,200}[=;({]
    |\b[a-z_][a-z0-9_.]{2,60}\([rfb]{0,2}["']|^[A-Za-z_][\w.\[\],\ :|]{0,60}\ =\ \S|^[rf]{1,2}["']
    |^(?:if|for|while|with|elif|except|try|else|case)\b.{0,200}:$
    |=>|==|!=|&&|\|\||:=\s|;\s?$|\)\s?\{$|^\}\s?(?:else|catch)
    |^\s?(?:litellm\.(?:exceptions|llms)\.[\w.]{1,60},)
    |^\S{1,200}\.(?:py|ts|tsx|js|mjs|go|rs|java|rb|md|txt|json|yml|yaml|toml):\d
    |"(?:new_string|old_string|file_text|command|aggregated_output)"\s?:""",
    re.X,
)
_TEST_LOG = re.compile(
    r"^(?:FAIL|PASS|ok|not ok|RUN|SKIPPED|PASSED|FAILED|E\s|AssertionError|stderr |stdout |Traceback"
    r"|npm (?:ERR|error|warn)"
    r"|pip|curl|wget|gh|git|fatal|docker|kubectl|aws|gcloud|terraform|brew|cargo|yarn|pnpm|make|ssh|rsync|fetch)\b(?:[:|!>]|\s[|(]|\s\S{1,80}\.(?:test|spec)\.)",
)
_TEST_NAME = re.compile(
    r"\b\S{1,80}\.(?:test|spec)\.\w{1,4}\b|\btest_\w{3,80}\b"
    r"|\b\d{1,7} (?:passed|failed|skipped)\b(?=[,;)]|\s?$|\s(?:in|\d))"
)


_ANOTHER_HOST = re.compile(
    r"registry\.npmjs|pypi\.org|crates\.io|rubygems\.org|docker\.io|docker\.com|api\.github\.com|ghcr\.io"
    r"|while getting https?:"
)


def own_lines(text: str) -> str:
    """The lines that may be the CLI's own: without code, test logs and tools, bullets only from their beginning."""
    return "\n".join(_softened(line) for line in text.split("\n") if not _stranger(line.removeprefix(SOFT)))


def all_lines(text: str) -> str:
    """Every line as it stands, where all of it is an error's own text."""
    return text.replace(SOFT, "")


def _softened(line: str) -> str:
    return _INNER_START.sub(",", line[1:]) if line.startswith(SOFT) else line


def without_meters(text: str) -> str:
    """The text without usage panels, which name limits and resets though none was hit."""
    return "\n".join(line for line in text.split("\n") if not (_METER.search(line) and not _HIT.search(line)))


def _stranger(line: str) -> bool:
    return bool(_CODE.search(line) or _TEST_LOG.search(line) or _TEST_NAME.search(line) or _ANOTHER_HOST.search(line))
