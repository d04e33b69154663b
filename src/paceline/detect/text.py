"""Readable text: without colours, boxes, padding, escapes and odd punctuation, with wrapped lines joined.

Here: cleaning; an error in one line for people, out of JSON bodies, dumps and wrapped text; and the lines that are the
CLI's own: not code, data, tests, panels, tools, an agent's prose, or what a screen shows. Never here: what a sentence
means.
"""

import json
import re

from paceline.detect.json_objects import find_documents, member, text_at

WRAP = "\x1f"
"""Marks where a wrapped line was joined: white space to every pattern, yet no end of a line."""
SOFT = "\x1e"
"""Begins a line that is an agent's bullet, a list item or the result of a tool."""
HEAD = 12_000
"""Characters read at the beginning of a huge text, where an error states its limit."""
TAIL = 12_000
"""Characters read at its end, where a screen shows one. What is between is skipped, so that time stays bounded."""

HIDDEN = re.compile(r"[^\x20-\x5b\x5d-\x7e]")
"""Escapes, colours, line breaks and odd letters may hide words, so only plain text can be tested as it is."""
_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[ -/]{0,4}[0-~]")
ODD = str.maketrans(
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
# Borders, bullets and prompts at the edges of a line: decoration of a screen, quoting of a log.
_EDGE_LEFT = re.compile(r"""^[^\w"'(){}\[\]<$/\\#+~.@&`:=-]{1,200}""")
# An agent's bullet or a list is prose, so only its first words can be the CLI's own.
_BULLET = re.compile(r"^\s{0,12}(?:[⏺●•·]|[-*]\s|\d{1,2}[.)]\s|⎿)")
_OWN_START = re.compile(r"API Error\b|Error: [45]\d\d\b")
_TOOL_ERROR = re.compile(r"^\s{0,12}⎿\s{0,4}(?:error|fatal|warning)\b[: ](?!.{0,40}\"type\")", re.I)
_PASSED = re.compile(r"\s{0,12}(?:⎿\s{0,4})?[✓✔√]")  # a test or a step that went well
_JS_JOIN = re.compile(r"""(?:\\n)?['"]\s?\+\s{0,400}['"]?""")
_SPACES = re.compile(r" {2,}")
ESCAPE = re.compile(r"\\{1,16}(?:u([0-9a-fA-F]{4})|([nrt\"'/]))")
_BARE = {"n": "\n", "r": "\r", "t": "\t"}
# A string in the source of a program stays one line, whatever its content is.
_LITERAL_LINE = re.compile(
    r"""[^\w"'{\[]{0,12}(?:\d{1,6}[^\w"'{\[]{1,80})?(?:[\w.]{1,40}\s?=\s?)?(?:[rfbu]{0,2}["']|\{\s?"(?!(?:type|errors?|message|code|status|detail)"))""",
    re.I,
)
# A number and a gap begin each line of a file or a change that is shown. Removing padding would lose the gap.
_NUMBERED = re.compile(r"^([ ]{0,8}\d{1,6})\t|^([ ]{1,8}\d{1,6})[ ](?:[ ]|[+-][ ])", re.M)


def decode_text(value: object) -> str:
    """Return any value as text; bytes as UTF-8, with invalid ones replaced."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def shorten(text: str) -> str:
    """Return the head and the tail of a huge text, or a shorter text as it is."""
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]}\n{text[-TAIL:]}"


def unescape(text: str) -> str:
    """Return text from inside JSON strings, however deep: `\\\\n`, `\\"`, `\\u2019`."""
    if "\\" not in text:
        return text
    return "\n".join(_unescape_line(line) for line in text.split("\n"))


def _unescape_line(line: str) -> str:
    is_literal = _LITERAL_LINE.match(line)

    def plain(match: re.Match[str]) -> str:
        if match[1]:
            code = int(match[1], 16)
            return chr(code) if not 0xD800 <= code <= 0xDFFF else ""
        bare = _BARE.get(match[2], match[2])
        return " " if is_literal and bare in "\n\r" else bare

    return ESCAPE.sub(plain, line)


def make_readable(text: str) -> str:
    """Return the readable text: one line per line, no colours, no borders, no padding, plain punctuation."""
    text = _ANSI.sub("", unescape(text)).replace("\r\n", "\n")
    text = _NUMBERED.sub(r"\1\2→", text).translate(ODD)
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
    """Return whether a line is the rest of a wrapped one: it begins in the middle of a sentence."""
    return (
        bare[0] != SOFT
        and line[:1] == bare[:1]
        and bare[0].islower()
        and bool(previous)
        and previous[-1] not in ".!?:;)}]\"'`"
    )


def join_lines(text: str) -> str:
    """Return the text without its line breaks, for words that a narrow terminal broke in two."""
    return text.replace("\n", "").replace(WRAP, "")


LONGEST_REASON = 300
"""Characters. Enough for any sentence, and a row of a table can still show it."""
LONGEST_READ = 16_000
"""Characters of an error that are read. Its words are at the beginning."""
_DEEPEST = 4
"""JSON bodies within the messages of others: proxies wrap one around the other, rarely more than twice."""
_PATHS = (
    ("error", "message"), ("error", "data", "message"), ("data", "message"), ("message",), ("error",), ("detail",),
    ("error", "detail"), ("error_description",), ("msg",), ("title",), ("result",), ("reason",), ("error", "name"),
    ("error", "type"), ("errors",),
)  # fmt: skip
_BODY = re.compile(r"""\{\s{0,80}["']""")
_CUT_MESSAGE = re.compile(r'"(?:message|detail|error|msg)"\s{0,4}:\s{0,4}"((?:[^"\\]|\\.){3,2000})')
_CODES = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)
_FIELD = re.compile(r'(?:message|error|detail|msg|result|text|reason): "(.{3,2000})"')
_LOGGED = re.compile(r'time(?:stamp)?=\S{1,40} level=\w{1,10} .{0,2000}?\berror(?:\.error)?="((?:[^"\\]|\\.){3,2000})')
_DEBRIS = re.compile(r"""[\s{}\[\](),:;"'\\]""")
_WORD = re.compile(r"[^\W\d_]{2}")
_STACK = re.compile(r"\s{1,12}at |\s{0,12}File \"|Traceback|\s{0,12}\^")
_ERROR = re.compile(
    r"error|fail|fatal|exception|panic|abort|denied|refused|cannot|can't|could not|couldn't|unable|invalid|not found"
    r"|no such|missing|unknown|unexpected|issue with",
    re.I,
)


def reason_line(text: str | None) -> str | None:
    """Return the words of an error as one bounded line: of a JSON body its message, and None if there are no words."""
    if not text:
        return None
    plain = " ".join(_CODES.sub("", _without_json(text[:LONGEST_READ], 0)).split())
    if field := _FIELD.fullmatch(plain) or _LOGGED.match(plain):
        plain = field[1]
    if not _WORD.search(plain):
        return None
    return plain if len(plain) <= LONGEST_REASON else f"{plain[: LONGEST_REASON - 1].rstrip()}…"


def last_words(*texts: list[str]) -> str | None:
    """Return the line that best says what went wrong: the last error at the end of a text, else the last words."""
    said = [
        [line for line in text if line.strip() and not _STACK.match(line) and not _is_debris(line)] for text in texts
    ]
    errors = [line for text in said for line in reversed(text) if _ERROR.search(line)]
    others = [line for text in said for line in reversed(text)]
    return next((found for line in (*errors, *others) if (found := reason_line(line)) is not None), None)


def _is_debris(line: str) -> bool:
    """Return whether a line is part of some data: more brackets and quotes than a sentence has."""
    bare = line.strip()
    is_whole = bare.startswith("{") and bare.endswith("}")
    return not is_whole and len(_DEBRIS.findall(bare)) - bare.count(" ") > len(bare) / 5


def _without_json(text: str, depth: int) -> str:
    """Return the text with its JSON body replaced by the message in it. What follows the body is dropped."""
    start = _BODY.search(text)
    if start is None or depth >= _DEEPEST:
        return text
    head = text[: start.start()]
    for document in find_documents(text):
        message = _message_in(document)
        if message is not None:
            return f"{head} {_without_json(message, depth + 1)}" if depth == 0 else _without_json(message, depth + 1)
    if cut := _CUT_MESSAGE.search(text, start.start()):
        return f"{head} {_without_json(_unquoted(cut[1]), depth + 1)}"
    return head


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _message_in(document: object) -> str | None:
    for path in _PATHS:
        found = text_at(document, *path)
        if found is not None and _WORD.search(found):
            return found
    errors = member(document, "errors")
    listed = errors if isinstance(errors, list) else ()
    return next(filter(None, (error if isinstance(error, str) else _message_in(error) for error in listed)), None)


# --- the lines that are the CLI's own ------------------------------------------------------------

# Meters: something is counted, nothing was hit.
_METER = re.compile(
    r"\d\s?%\s?(?:left|remaining|of\b|\(resets)|(?<!\b10)\d\s?%\s?used|(?:usage|limit|session|weekly|monthly|details|wk|5h|7d|ctx):\s{0,20}(?:\[[^\]]{0,80}\]\s?)?\d{1,3}(?:\.\d)?\s?%"
    r"|\$[\d.]+(?:/\$[\d.]+)?\sremaining",
    re.I,
)
_HIT = re.compile(r"\b(?:reached|hit|exceeded|exhausted|out of|used 100% of)\b", re.I)
# Code, diffs, listings, tables, searches, changes and lists of terms, by how a line begins: the words occur in them,
# but they state nothing.
_BEGINS_AS_CODE = re.compile(
    r"""(?![45]\d\d:\s\w)(?:\d{1,6}(?:\s?[|+]|\s-)|\d{2,6}\s?:)\s|\d{1,6}→|@@\s|diff\s--git|\#!|//|/\*|\*\s@|```|\#{1,6}\s
    |(?:const|let|var|import|from\s\S{1,80}\simport|export|async|pub|impl|elif|return|self\.|await)\b.{0,200}[=;({]
    |\(.{0,300}\),$|(?:rem|;)\s|-?[a-z]\s["']|\}\s?(?:else|catch)|[\w.]{2,60}\($
    |(?!(?-i:\w{0,60}(?:Error|ERROR|Exception)):\s\w{0,40}(?:limit|quota|rate|request|throttl|overload|usage|credit))[a-z_]\w{1,60}:\s(?-i:type|list|dict|tuple|set|str|int|float|bool|None|[A-Z]\w{2,40})(?:\[|\s\||,?$)
    |(?!rpc\serror)[A-Za-z_][\w.\[\],\ :|]{0,60}\ =\ \S
    |(?:if|for|while|with|elif|except|try|else|case)\b.{0,200}:$
    |\s?(?:litellm\.(?:exceptions|llms)\.[\w.]{1,60},)
    |\S{1,200}\.(?:py|ts|tsx|js|mjs|go|rs|java|rb|md|txt|json|yml|yaml|toml|log|cs|cpp|cc|c|h|vue|sql|sh|html|css|xml|cfg|ini|csv|conf|lock)(?::\d|-\d{1,6}-|\(\d{1,6},\d)
    |\#\d{1,7}\s
    |[-dlcbps]?(?:[r-][w-][xsStT-]){3}[.+@]?\s
    |(?:[\w-]{1,60}\.(?:py|ts|tsx|js|go|rs|java|rb|md|txt|json|yml|yaml|toml|sh|css|html)(?:\s{1,4}|$)){1,20}$
    |\s{0,20}(?:title|name|label|description|summary|heading|placeholder|subject|tooltip):\s
    |\s{0,20}<(?!/?(?:html|head|title|body|center|h1|hr|error|message|code)\b)/?[a-z][\w:.-]{0,40}(?:\s[^>]{0,200})?/?>
    |[^|]{1,200}\s\|\s[^|]{1,200}\s\|(?:\s|$)|(?!error)[^*]{1,80}\*\*(?::|\s|$)
    |(?:q|a|re|fwd?|pr|issue|see\salso|tip|note|example|faq|symptoms?|solution|summary|question|answer|step\s\d{1,2}):\s
    |(?:error|status|exit|return)\scodes\b
    |(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\s\S
    |(?:feat|fix|docs|chore|refactor|tests?|perf|ci|build|style|revert)(?:\([^)]{1,40}\))?!?:\s
    |merge\s(?:pull|branch)|commit\s[0-9a-f]{7}|(?:on|your)\sbranch\s
    |(?:fixed|improved|added|changed|removed|updated|introduced|deprecated|renamed|reworked|prevented)\s\w""",
    re.X | re.I,
)
_CODE = re.compile(
    r"""\b(?:console\.(?:log|error|warn)|logger\.\w{1,12}|log\.\w{1,12}|print(?:f|ln)?|includes|match(?:es)?|expect|test|describe|it|re\.compile|mock\w{0,20})\(
    |\b(?:throw\snew|raise|new)\s\w{1,60}\(|\bassert\w{0,20}[\s(]\S|\bside_effect\b
    |\b(?:def|fn|func|function|class)\s\w{1,80}\s?[(:{]
    |(?-i:\b[a-z_]\w{0,2}[\w.]{1,60}|(?<!:\s)\b[A-Z][\w.]{2,60})\([rfb]{0,2}["']
    |(?-i:\b[a-z_]\w{1,40}\.[a-z_]\w{1,40}\([A-Za-z_"'({\[]|\b[a-z_]\w{1,60}\((?:\{|[a-z_]\w{0,40}\.[a-z]))
    |=>|==|!=|&&|\|\||:=\s|;\s?$|\)\s?\{$
    |\#\d{1,7}:\s|\b(?:pr|issue|pull\srequest|clos(?:e|es|ed)|fix(?:es|ed)?|resolves|see)\s?\#\d|\(\#\d{2,6}\)
    |\s(?:->|→)\s?(?:http\s)?[45]\d\d\b|\bas\sexpected\b|\s›\s
    |\b(?:Key|Name|Import|Attribute|Reference|Syntax|ModuleNotFound|Assertion|Index)Error:
    |\bunused\s(?:import|variable)|\bfailed\s(?:to\scompile|test:)|\benum\s\w{1,60}\s?\{
    |"(?:new_string|old_string|file_text|command|aggregated_output)"\s?:""",
    re.X | re.I,
)
_TEST_LOG = re.compile(
    r"^(?:(?:[Ee]xpected|[Rr]eceived|[Aa]ctual|[Gg]ot|[Ww]ant)(?: \w{1,12}){0,2}:(?! [45]\d\d)|"
    r"npm (?:ERR!|error|warn|notice)\s|E\s+\S|"
    r"(?:FAIL|PASS|ok|not ok|RUN|SKIPPED|PASSED|FAILED|E\s|AssertionError|stderr |stdout |Traceback"
    r"|npm (?:ERR|error|warn)"
    r"|pip|curl|wget|gh|git|fatal|[EW]|go|grep|rg|sed|awk|find|tar|bash|zsh|yt-dlp|docker|kubectl|aws|gcloud|terraform|brew|cargo|yarn|pnpm|make|ssh|rsync|fetch|gradle|mvn|webpack|vite|redis|psql|mysql)\b(?:[:|!>]|\s[|(]|\s\S{1,80}\.(?:test|spec)\.))",
)
_TEST_NAME = re.compile(
    r"^(?:not )?ok \d{1,6}\b|^test \S{1,200} \.\.\. |\b\S{1,80}\.(?:test|spec)\.\w{1,4}\b|\btest_\w{3,80}\b"
    r"|\b\d{1,7} (?:passed|failed|skipped)\b(?=[,;)]|\s?$|\s(?:in|\d))"
)
_TO_DO = re.compile(r"\s{0,20}(?:\+{1,3}\s|(?:[-*+•]\s)?\[ \]\s|[-*+•]\s\[[xX]\]\s|(?:TODO|FIXME)\b)")
# A list of terms, each with what it means or what to do: "- Rate limited: back off".
_TERM = re.compile(r"(?:[-+]|\d{1,2}[.)])\s([^:\n]{1,60}):\s\S")
_ANOTHER_HOST = re.compile(
    r"(?i:\bgithub(?:\sapi)?:\s|\btoomanyrequests:|urn:ietf:params:acme|\bout of memory\b)|\bOOM\b|"
    r"\(HY\d{3}\)|SQLSTATE|registry\.npmjs|pypi\.org|crates\.io|rubygems\.org|docker\.io|docker\.com|api\.github\.com|ghcr\.io"
    r"|while getting https?:|docs\.github\.com/rest|when calling the (?!Invoke|Converse)\w{1,60} operation"
    r"|\b(?:GET|POST|PUT|PATCH|DELETE|HEAD)\s{1,6}[\"']?/"  # an access log
    r"|(?i:secondary rate limit|pull rate limit|rate limit exceeded for (?:user id|installation|\d{1,3}\.\d))"
)
# Other services, which agents call by an SDK or a command line of theirs.
_NAMES = """
    twilio sendgrid mailgun slack discord telegram tweepy praw reddit stripe paypal shopify jira confluence notion
    gitlab bitbucket sentry datadog algolia mapbox geocoding firebase supabase firecrawl serpapi tavily dynamodb
    elasticsearch mongo etcd kubernetes kafka selenium coinbase binance rest_framework django duckduckgo sqlalchemy
    psycopg asyncpg pymysql hikari yfinance graphql lambda twitter youtube spotify dockerhub pypi openweathermap
    wikipedia coingecko firestore bigquery netlify heroku homebrew"""
_SERVICES = tuple(_NAMES.split())
_SERVICE = rf"\b(?:{'|'.join(_SERVICES)})"
# At the head of the line, before a colon, or as the one who refused: an advice to ask on Discord is the provider's.
_OF_A_SERVICE = re.compile(
    rf"[^:\n]{{0,60}}?{_SERVICE}|.*?(?:{_SERVICE}\w{{0,12}}:|\b(?:for|from|by)\s{_SERVICE}\b)", re.I
)
# A string of a program or a member of an object states nothing, unless the object is an error that was printed.
_LITERAL = re.compile(
    r"""[(\[{]{0,3}\s?(?:[\w.]{1,40},\s?){0,4}(?:[rfbu]{1,2})?["'`]|[\w.]{1,60}\s?=\s?["'{\[(]""", re.I
)
_CHANGED = re.compile(r"[+-]{1,3}\s?(?=\S)")  # how a diff marks a line
_MEMBER = re.compile(r"""(?![\w.]{0,80}(?:Error|Exception)\s?:)[{\s]{0,4}["']?[\w.$@-]{1,60}["']?\s?:\s?["'{\[]""")
_BODY_HEAD = re.compile(r"error|fail|exception|status|respon|reject|retry|\b[45]\d\d\b|⚠|✕|✗|×", re.I)
_BODY_KEY = re.compile(r"""[{\s\[]{0,4}["']?(?:errors?|message|msg|detail|fault|title|status_msg)["']?\s?:""", re.I)
# Without one of these it is a record of a program's log, or an answer.
_ERROR_KEY = re.compile(
    r"""["'](?:err|errors?|exception|status|status_?code|status_msg|code|type|detail|fault|error_?\w{3,8})["']\s?:""",
    re.I,
)
_LOGFMT_RECORD = re.compile(
    r"^[\s\[]{0,4}(?:[^\s\"{]{1,40}\s{1,4}){0,4}\[?(?-i:INFO|DEBUG|TRACE)\b(?!.{0,400}(?:\b(?:429|5\d\d)\b|retry))|\blevel=\w{4,8}\s.{0,200}?\bmsg=(?!.{0,400}\berr(?:or)?=)",
    re.I,
)
_SETTING = re.compile(r"""["']?[\w.-]{1,80}["']?\s?[:=]\s?(?:true|false|null|none|nil)\s?[,;]?$""", re.I)
_DOCUMENT = re.compile(r"""(?:\{\s?["']|\[\s?[{"']).{0,4000}[\]}],?$""")
_CUT_EVENT = re.compile(r'\{\s{0,8}"type"\s?:')  # those of the agent's own words were left out before
_ANNOUNCEMENT = re.compile(r"\w(?:Error|Exception): ?$")
# The body of an error whose first line has scrolled by: its message, and then nothing but what else it states.
_CUT_BODY = re.compile(
    r"""\s{0,8}"(?:message|detail)"\s?:\s?"[A-Z](?:[^"\n]{0,400}\n){0,6}[^"\n]{0,400}",?\n"""
    r"""(?:\s{0,8}"\w{1,40}"\s?:[^\n]{0,200}\n?){1,12}\s{0,8}$(?!\n)""",
)
LONGEST_BODY = 80
"""Lines. An unbalanced bracket must not turn the rest of the text into the body of an error."""
# Only the beginning of an agent's bullet can be the CLI's, so the rest is read as one sentence.
_INNER_START = re.compile(r"(?<=[a-z]{2})[.:;!?)] ?(?=\s)|(?<=\w)\s[-–—](?=\s)")
_INLINE_CODE = re.compile(r"`[^`\n]{1,200}`")


def own_lines(text: str) -> str:
    """Return the lines that may be the CLI's own: without code, test logs and tools; of bullets only the beginning."""
    kept: list[str] = []
    depth, length, before = (1 if _CUT_BODY.match(text) else 0), 0, ""
    for line in text.split("\n"):
        bare = line.removeprefix(SOFT)
        if depth > 0 and length < LONGEST_BODY:
            depth, length = depth + _net_brackets(bare), length + 1
            kept.append(bare)
        elif _is_announced(before) or not _is_foreign(bare, is_soft=bare is not line):
            depth, length = (_net_brackets(bare) if _begins_body(bare) else 0), 0
            sentence = bare if bare is line else _INNER_START.sub(",", bare)
            kept.append(_INLINE_CODE.sub("`x`", sentence))
        before = bare
    return "\n".join(kept)


def without_meters(text: str) -> str:
    """Return the text without usage panels, which name limits and resets though none was hit."""
    return "\n".join(line for line in text.split("\n") if not (_METER.search(line) and not _HIT.search(line)))


def _is_foreign(line: str, *, is_soft: bool) -> bool:
    if _TO_DO.match(line) or (is_soft and _is_a_term(line)):
        return True
    line = _CHANGED.sub("", line, count=1) if _CHANGED.match(line) else line
    if _ANOTHER_HOST.search(line) or _LOGFMT_RECORD.search(line) or _SETTING.match(line) or _is_of_a_service(line):
        return True
    if _DOCUMENT.match(line):
        return is_soft or not (_BODY_KEY.search(line) and _ERROR_KEY.search(line))
    is_data = _LITERAL.match(line) or _MEMBER.match(line)
    if is_data and not _CUT_EVENT.match(line) and not (_BODY_KEY.match(line) and _begins_body(line)):
        return True
    is_code = _BEGINS_AS_CODE.match(line) or _CODE.search(line)
    return bool(is_code or _TEST_LOG.match(line) or _TEST_NAME.search(line))


def _is_a_term(line: str) -> bool:
    """Return whether a list item explains its first words. What an error states is no explanation of it."""
    found = _TERM.match(line)
    return found is not None and not _BODY_HEAD.search(found[1])


def _is_of_a_service(line: str) -> bool:
    low = line.lower()
    return any(name in low for name in _SERVICES) and bool(_OF_A_SERVICE.match(line))


def _begins_body(line: str) -> bool:
    """Return whether an error's body begins on this line and continues below."""
    head = line.partition("{")[0]
    return "{" in line and (not head.strip(" [(") or bool(_BODY_HEAD.search(head)))


def _is_announced(before: str) -> bool:
    """Return whether the line before announces an error's body: `SomeConnectionError:`."""
    return before.endswith(":") and bool(_ANNOUNCEMENT.search(before))


def _net_brackets(line: str) -> int:
    return line.count("{") + line.count("[") - line.count("}") - line.count("]")


# A prompt with a command that prints what others wrote. What an agent CLI prints below its own command counts.
_COMMAND = re.compile(
    r"[ \t]{0,40}(?:[\w.@~/:()\[\]-]{1,60} ?){0,2}[$❯%] {1,2}(?:sudo )?(?:cat|bat|less|more|head|tail|rg|grep|egrep|ag"
    r"|ack|git|sed|awk|jq|curl|wget|find|diff|echo|printf|strings|nl|journalctl|kubectl|gh|pytest|npm|pnpm|yarn|cargo"
    r"|make|ls|tee|xxd|view|python\d?|node|ruby|php|go|java|docker|terraform|helm|ssh)\b"
)
_PROMPT = re.compile(r"[ \t]{0,40}(?:[\w.@~/:()\[\]-]{1,60} ?){0,2}[$❯%>](?: |$)")
_TOOL = re.compile(
    r"[ \t]{0,40}[⏺●•] ?(?!API|Error)[A-Z]\w{1,20}(?: [A-Z]\w{1,20})?\("
    r"|[ \t]{0,40}[⏺●] ?[\w.-]{1,60} - [\w.-]{1,60} \(MCP\)"
    r"|[ \t]{0,40}[⏺●•] (?:Ran|Explored|Searched|Read|Called|Edited|Added)\b"
)
_MARK = re.compile(r"[ \t]{0,40}[⏺●•■✕✗✻⚠╭]")
# What an agent says continues below its bullet. Where the bullet itself may be an error, so may be what is below it.
_SAID = re.compile(r"[ \t]{0,40}[⏺●•✦] ?(?=\w)")
_MAY_BE_OWN = re.compile(
    r"error|fail|limit|quota|usage|credit|balance|capacity|overload|rate|throttl|retry|reset|\b[45]\d\d\b|log ?in|key"
    r"|upgrade|plan|too many|demand|busy|unavailable|exhaust|exceed|billing|payment|限|额|繁忙|频",
    re.I,
)
_FENCE = re.compile(r"[ \t]{0,12}(?:```|~~~)")
_RESULT = re.compile(r"[ \t]{0,40}[⎿└]")
_SHOWS = re.compile(r"[$❯%⎿└⏺●•✦]|```|~~~")


def with_blanks_for_shown_output(rows: list[str]) -> list[str]:
    """Return the rows, and empty ones for what stands below a command, a tool or an agent's words, or in fences."""
    if not _SHOWS.search("\n".join(rows)):
        return rows
    return ["" if is_shown else row for row, is_shown in zip(rows, _shown(rows), strict=True)]


def _shown(lines: list[str]) -> list[bool]:
    found = _fenced(lines)
    block: _Block | None = None
    for place, line in enumerate(lines):
        if found[place]:
            continue
        if block is not None and block.holds(line):
            found[place] = True
        else:
            block = _block_after(line)
    return found


def _fenced(lines: list[str]) -> list[bool]:
    """Return for each line whether it is a fence or between two. A single one has lost its partner."""
    found = [False] * len(lines)
    fences = [place for place, line in enumerate(lines) if _FENCE.match(line)]
    if len(fences) % 2 == 0:
        for first, last in zip(fences[::2], fences[1::2], strict=True):
            found[first : last + 1] = [True] * (last + 1 - first)
    return found


class _Block:
    """What stands below one command, one tool, or the first line of what an agent says."""

    def __init__(self, indent: int, *, is_tool: bool = False, is_said: bool = False) -> None:
        self._indent = indent
        self._is_tool = is_tool
        self._is_said = is_said
        self._results = 0

    def holds(self, line: str) -> bool:
        """Return whether the next line belongs to the block."""
        if not line.strip():
            return not self._is_tool
        indent = _indent(line)
        if self._is_said:
            return indent > self._indent and not _MARK.match(line) and not _RESULT.match(line)
        if self._is_tool:
            # A second result below one tool is the CLI's own: the tool had its say.
            self._results += bool(_RESULT.match(line))
            return indent > self._indent and self._results == 1
        if indent < self._indent or _PROMPT.match(line):
            return False
        return not (self._indent == 0 and _MARK.match(line))


def _block_after(line: str) -> _Block | None:
    if _COMMAND.match(line):
        return _Block(_indent(line))
    if _TOOL.match(line):
        return _Block(_indent(line), is_tool=True)
    return _Block(_indent(line), is_said=True) if _SAID.match(line) and not _MAY_BE_OWN.search(line) else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
