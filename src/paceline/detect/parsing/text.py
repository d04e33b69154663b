"""A text made readable: colours, boxes, padding, escapes and odd punctuation removed, wrapped lines joined.

Here: cleaning. Never here: whose words a line is (voices.py), or what a sentence means.
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
_TOOL_ERROR = re.compile(r"^\s{0,12}⎿\s{0,4}(?:error|fatal|warning)\b[: ](?!.{0,40}\"type\")", re.I)
_PASSED = re.compile(r"\s{0,12}(?:⎿\s{0,4})?[✓✔√]")  # a test or a step that went well
_JS_JOIN = re.compile(r"""(?:\\n)?['"]\s?\+\s{0,400}['"]?""")
_SPACES = re.compile(r" {2,}")
_ESCAPE = re.compile(r"\\{1,16}(?:u([0-9a-fA-F]{4})|([nrt\"'/]))")
_BARE = {"n": "\n", "r": "\r", "t": "\t"}
# A string in a program's text stays one line, whatever it is the text of.
_LITERAL_LINE = re.compile(
    r"""[^\w"'{\[]{0,12}(?:\d{1,6}[^\w"'{\[]{1,80})?(?:[\w.]{1,40}\s?=\s?)?(?:[rfbu]{0,2}["']|\{\s?"(?!(?:type|errors?|message|code|status|detail)"))""",
    re.I,
)
# A number and a gap begin each line of a file or a change that is shown: the gap would be lost with the padding.
_NUMBERED = re.compile(r"^([ ]{0,8}\d{1,6})\t|^([ ]{1,8}\d{1,6})[ ](?:[ ]|[+-][ ])", re.M)


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

    return "\n".join(_unescaped_line(line) for line in text.split("\n"))


def _unescaped_line(line: str) -> str:
    is_literal = _LITERAL_LINE.match(line)

    def plain(match: re.Match[str]) -> str:
        if match[1]:
            code = int(match[1], 16)
            return chr(code) if not 0xD800 <= code <= 0xDFFF else ""
        bare = _BARE.get(match[2], match[2])
        return " " if is_literal and bare in "\n\r" else bare

    return _ESCAPE.sub(plain, line)


def cleaned(text: str) -> str:
    """The readable text: one line per line, no colours, no borders, no padding, plain punctuation."""
    text = _ANSI.sub("", unescaped(text)).replace("\r\n", "\n")
    text = _NUMBERED.sub(r"\1\2→", text).translate(_ODD)
    lines: list[str] = []
    for raw in text.split("\n"):
        if _TOOL_ERROR.match(raw) or _PASSED.match(raw):
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
