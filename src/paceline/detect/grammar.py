"""What a text states about limits: the statements in it, each composed of what, state, period and what is harmless.

Here: which sequences of concepts state that something is spent, missing, refused or busy, what such a statement means,
and which one counts. Never here: words (`lexicon.py`), or when a limit ends.
"""

import re
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from paceline.detect.lexicon import (
    BEGIN,
    CLOSE,
    CLOSED,
    COMMA,
    LEXICON,
    OPEN,
    OTHER,
    STARTS,
    STATUS,
    Concept,
    Encoded,
    Lexicon,
)
from paceline.detect.observation import FIVE_MINUTES, HOUR, STAGE_OF, Kind, Meaning, Stage
from paceline.detect.prefilter import Branch

# Any word of a statement; between two concepts of a form only a few may stand.
_ANY = r'[^|"!N<>,eE&-]'
_NOT_COUNTED = r'[^|"!N<>,eE&#4-]'
_MODIFIER = r'[^|"!N<,eEs&-]'


class Form(msgspec.Struct, frozen=True):
    """One way to state that a limit was met.

    `needs`: every text in this form has a word of each of these groups of concepts. `open_end`: the statement may
    continue with any word. `is_loose`: so plain that it counts only in an error's own text, or as its code.
    """

    name: str
    pattern: re.Pattern[str]
    needs: tuple[str, ...]
    open_end: bool = False
    is_loose: bool = False


def _form(name: str, pattern: str, *needs: str, open_end: bool = False, is_loose: bool = False) -> Form:
    return Form(name=name, pattern=re.compile(pattern), needs=needs, open_end=open_end, is_loose=is_loose)


_NOUNS = "[lqck$durbw1I]{0,3}"
_NAME = "(?:[nmU]?[RqucrGP9$I]{1,3}l[9GRruc]{0,2}|[rb]>?[pP]l|l[Rrq])"

FORMS: tuple[Form, ...] = (
    # "reached your weekly usage limit", "exceeded the call rate limit", "exhausted your capacity"
    _form("spent-limit", rf"s{_ANY}{{0,8}}?[lqck$d]\$?(?:{_NOUNS}[lq])?", "lqck$d", "s"),
    _form("spent-limit", rf"s{_ANY}{{0,3}}?u(?!{_ANY}{{0,3}}[lq])", "u", "s"),
    _form("spent-limit", rf"s{_ANY}{{0,4}}?G|s>Rl", "GR", "s"),
    # "weekly limit for this model has been reached", "free usage exceeded"
    _form("limit-spent", rf"[lqu$dkcSG](?:[>f]?{_MODIFIER}){{0,6}}?s", "lqu$dkcSG", "s"),
    # "daily allowance spent", "usage cap for this week is gone"
    _form("limit-spent", rf"[lq](?:[>f]?{_MODIFIER}){{0,6}}?X", "lq", "X"),
    # "your weekly quota is at 100%"
    _form("limit-spent", rf"Y{_ANY}{{0,3}}?[lqu]a(?:[@2]%|%v)", "Y", "lqu"),
    # "you are over your daily limit"
    _form("spent-limit", rf"Ya[2@]Y{_ANY}{{0,4}}?[lq]", "lq", "2@"),
    # "daily requests exhausted", "rate exceeded"
    _form("limit-spent", rf"P{_ANY}{{0,3}}?[rb]{_ANY}{{0,4}}?s|[pI][rb]a{{0,2}}s", "rb", "PpI", "s"),
    # "requests per minute exceeded", "API calls used up for today", "exceeded its requests this month"
    _form("limit-spent", rf"[rb]{_ANY}{{0,2}}?[pPG]{_ANY}{{0,3}}?s|4{_ANY}{{0,2}}?[rb]a{{0,2}}s", "rb", "s"),
    _form("limit-spent", rf"[rb]{_ANY}{{0,2}}?s[>_]{{0,2}}[pP]", "rb", "pP", "s"),
    _form("limit-spent", rf"(?:Ya?s[#4]?|s){_NOT_COUNTED}{{0,4}}?[rb][>_f]{{0,2}}[pP]", "rb", "pP", "s"),
    _form("limit-spent", r"4Ra?s", "R", "s"),
    _form("limit-spent", r"Ra?s", "R", "s", is_loose=True),
    _form("limit-spent", rf"PV{_ANY}{{0,3}}?s", "V", "s"),
    _form("accounts-spent", rf"A{_ANY}{{0,4}}?n{_ANY}{{0,3}}?s", "n", "A", "s"),
    # "the free tier of the model has been exhausted"
    _form("limit-spent", rf"I(?:[>f]?{_MODIFIER}){{0,5}}?s", "I", "s", is_loose=True),
    # "request too large for this model on tokens per minute": no wait changes it
    _form("oversize", r"Z", "Z", is_loose=True),
    # "you are out of credits", "every account has run out of quota"
    _form("out-of", rf'of[^|"!N<,#4]{{0,4}}?[qurb$dkl]{_NOUNS}', "qurb$dkl", "o"),
    # "used all of your premium requests", "used 100% of your quota"
    _form("used-all", rf"v[A%]f?{_ANY}{{0,6}}?[qurbl$d]{_NOUNS}", "qurbl$d", "v"),
    _form("used-all", r"vY[#4]I?[urb]", "urb", "v"),
    # "used up your premium requests", "used your 5-hour allowance"
    _form("spent-limit", rf"sY{_ANY}{{0,3}}?[rb]", "rb", "Y", "s"),
    _form("used-all", rf"YvY{_ANY}{{0,2}}?P[lq](?![fL])", "lq", "P", "v"),
    # "used 15 of 15 daily tasks", "100 messages per 3 hours used"
    _form("used-all", rf"v[A%]f?{_ANY}{{0,4}}?P[w1]|[urb]>{_ANY}{{0,2}}?Pv(?![#4A%&])", "P", "v"),
    # "no quota", "no credits left", "no slots available", "no capacity available"
    _form("none-left", rf"0{_ANY}{{0,3}}?[qk$d](?!x)L?", "qk$d", "0"),
    _form("none-left", rf"0{_ANY}{{0,3}}?[urbw1S]{_ANY}?L|0{_ANY}?P{_ANY}{{0,2}}?lL", "L", "urbw1Sl", "0"),
    # "0 requests remaining today", "your remaining credits are 0"
    _form("none-left", rf"8{_ANY}{{0,3}}?[lqurb$]{_ANY}?L|L{_ANY}{{0,3}}?[lqurb$]a8", "L", "lqurb$"),
    _form("accounts-spent", rf"0{_ANY}{{0,3}}?n{_ANY}?L", "L", "n", "0"),
    # "insufficient balance", "balance is too low"
    _form("lacking", rf"i{_ANY}{{0,3}}?[q$dkcr]{_NOUNS}", "q$dkcr", "i"),
    _form("lacking", rf"[q$dk]{_ANY}{{0,2}}?i", "q$dk", "i"),
    # "requires more credits", "usage credits are required"
    _form("needed", r'K[^|"!N<>,#4]{0,2}?\$|\$a{0,2}K', "$", "K", open_end=True),
    # "too many concurrent requests"
    _form("too-many", rf"M{_ANY}{{0,3}}?[rbw1cu]{_NOUNS}F?(?!<[^|]{{0,2}}r)", "M"),
    # "concurrency is too high", "high concurrency usage"
    _form("too-high", r"[cR]a{0,3}H|H[cR]u?", "H", "cR"),
    # "your account is in arrears", "your balance is $0.00"
    _form("lacking", rf"[Yn]{_ANY}{{0,3}}?6", "6", "Yn"),
    _form("lacking", r"6", "6", is_loose=True),
    _form("lacking", rf"Y{_ANY}{{0,2}}?\$a{{1,2}}0", "$", "Y"),
    # "request was throttled", "rate limited", "limiting requests", "cooling down"; "throttled to 10" is a setting
    _form("throttled", r"(?:T|Ra?j|j[x_]R)(?!t[#4]|\|?[#&])", "Tj"),
    _form("throttled", r"aR?Jr|J[rb]?a{0,2}s|RJ(?=>[#4])", "J"),
    _form("throttled", r"[mrY]aR?J", "J", open_end=True),
    _form("throttled", r"J|RlY", "JR", is_loose=True),
    _form("throttled", r"[aA][><]?C|n[#4]?C", "C"),
    _form("throttled", r"j>_?c", "j", "c"),
    # "Rate limit error: try again in 5 minutes"
    _form("named-error", r"(?<=[|4(])[Rucq]le(?=\|)", "l", "Rucq"),
    # Nothing but the name of a limit: `"code": "QuotaLimit"`, "status_msg": "conn limit"
    _form("named", rf'(?:(?<="\|\|)|(?<=e\|)|(?<=e)){_NAME}(?=["|,)]|$)', "l", "RqucrGP9$Ipl", is_loose=True),
    _form("named-code", rf"{_NAME}(?=e{{0,2}}(?:[\"|,)@]|$))", "l", "RqucrGP9$Ipl", is_loose=True),
    # "limited to 10 requests per minute"
    _form("limited-to", rf'jt[#4]{_ANY}{{0,3}}?[rb][>f"]?[^|"!N<]{{0,2}}?[pP]', "j"),
    # "service is overloaded", "529 Overloaded", "experiencing high demand", "due to server overload"
    _form("busy", r'ma{0,3}O|[|4]O(?=[|"#4]|$)|aO|yt?[^|"!N]{0,3}?O', "O"),
    _form("busy", r"O", "O", is_loose=True),
    _form("busy", r'H[xa_]?D|DH|yt?[^|"!N]{0,3}?D', "D", "Hy"),
    # "server is busy", "at full capacity"
    _form("busy", r"[mS]a{0,3}B", "B"),
    _form("busy", rf"[@2]{_ANY}{{0,2}}?k", "k", "@2"),
    # "all slots are taken", "timed out waiting for a slot"
    _form("slots", rf"A{_ANY}{{0,4}}?S{_ANY}{{0,2}}?[BO]|g[^|\"!N]{{0,6}}?S|0I{_ANY}{{0,2}}?S", "S"),
)


LEAD = 14
"""Words between the beginning of a statement and its core: a longer beginning is a sentence about something else."""
NEAR = 8
"""Words after a core that still say what is limited: "the limit of 5 concurrent sessions"."""
MAX_PLACES = 40
"""Places of one form that are read. The bound keeps the time linear."""
MANY_KINDS = 3
"""Kinds of limits on one line that make it a list of them."""
_OURS = re.compile(r"[WYuIU1bmnRGPp4]")
"""What shows that it is a limit on calls of a model: "you", usage, tokens, a plan, a period."""
_WHEN = re.compile(r"<(?:[<@#48>|]|x[#4]|$)")
"""When it ends: "try again", "resets at", "in 5"; not "in the queue"."""
_OUR_MONEY = re.compile(r"[WYuIUbmnr4-]")
"""The same of money, which every shop and every game has: a period or a wait are not enough."""
_RIGHT = frozenset('|",<>-ftyL@#48&E()')


_WITHIN = (STATUS, OPEN)
_CALLERS = (Concept.ERROR.value, Concept.REFUSED.value, STATUS)
"""What stands before the code of an error: "error", "failed with", "reason", a status."""
_PUNCTUATION = BEGIN + CLOSED + OPEN + Concept.CONNECTIVE.value
_AFTER_A_CODE = ("", BEGIN, CLOSED, CLOSE, COMMA, Concept.AT.value)
_VALUE = CLOSED + BEGIN + BEGIN  # `"type": "`
_ERRORS = frozenset({Concept.ERROR.value, STATUS})
_TAIL = re.compile(r"^(?:[eapP]|_P)+")
"""What may follow before a statement ends: "error", "now", "this month"."""


class Statement(Meaning, frozen=True, kw_only=True):
    """A limit that a text states. `start` and `end` are places in the text."""

    start: int = 0
    end: int = 0


class Grammar:
    """Reads statements with the words of one lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """What the forms need: a text that states something has a word of each set of one of the branches."""
        words = {letters: self._words_of(letters) for form in FORMS for letters in form.needs}
        return tuple(
            (frozenset({word}), *(words[letters] for letters in form.needs[1:]))
            for form in FORMS
            for word in sorted(words[form.needs[0]])
        )

    def names_another_owner(self, line: str) -> bool:
        """Return whether a line names a database, a build or a shop, and nothing of a provider of models."""
        letters = frozenset(Encoded(line, self.lexicon).letters)
        return "F" in letters and letters.isdisjoint("cRUIm")

    def _words_of(self, letters: str) -> frozenset[str]:
        concepts = frozenset(map(Concept, letters))
        of_pairs = (max(pair, key=len) for pair, concept in self.lexicon.pairs.items() if concept in concepts)
        return self.lexicon.words_of(*concepts) | frozenset(of_pairs)

    def statements(self, text: str, *, is_loose: bool) -> list[Statement]:
        """Return what a text states. Read strictly, a statement must be a sentence of its own."""
        encoded = Encoded(text, self.lexicon)
        present = frozenset(encoded.letters)
        has_code = ("1" in encoded.joined or "-" in encoded.joined) and not present.isdisjoint("e5")
        stated = [
            statement
            for form in FORMS
            if (is_loose or has_code or not form.is_loose) and not any(map(present.isdisjoint, form.needs))
            for found in islice(form.pattern.finditer(encoded.letters), MAX_PLACES)
            if (statement := _read(encoded, form, found.start(), found.end(), is_loose=is_loose)) is not None
        ]
        return stated if is_loose else _without_lists(text, stated)


def _without_lists(text: str, stated: list[Statement]) -> list[Statement]:
    """Leave out lines that name limits of many kinds: whoever lists them has met none."""
    kinds: dict[int, set[Kind]] = {}
    for statement in stated:
        kinds.setdefault(_line_of(text, statement), set()).add(statement.kind)
    return [one for one in stated if len(kinds[_line_of(text, one)]) < MANY_KINDS or "{" in text]


def _line_of(text: str, statement: Statement) -> int:
    return text.count("\n", 0, statement.start)


def _read(encoded: Encoded, form: Form, start: int, end: int, *, is_loose: bool) -> Statement | None:
    letters = encoded.letters
    begin = _beginning(letters, start)
    lead = letters[begin:start]
    if "!" in lead or {"N", "0"} & set(lead[-4:]) or ("W" in lead and not is_loose and form.name != "busy"):
        return None
    after = letters[end : end + 2 * NEAR]
    core = letters[start:end]
    joined = encoded.joined[start:end]
    is_code = "0" not in joined and "-" not in joined
    is_named = "0" not in joined and _is_the_code_of_an_error(encoded, start, end)
    is_own = is_named if form.name == "named-code" else is_loose or is_named
    if not is_own and (form.is_loose or _is_no_sentence(encoded, form, (begin, start, end), is_code=is_code)):
        return None
    meaning = _meaning(form.name, core, lead, after)
    if is_code and not is_loose and _is_any_code(encoded, meaning.kind, (begin, start, end)):
        return None
    # Beside a size another line may state a limit. In the body of one error it is the reason of all of it.
    if meaning.kind == "none" and (not is_loose or {"s", "X", "Z"}.isdisjoint(core)):
        return None
    if not is_own and meaning.stage is Stage.WEAK and "<" not in after and not _is_why_it_failed(core, letters[:begin]):
        return None
    is_only_a_code = (is_code or form.name == "named") and meaning.stage not in (Stage.SIZE, Stage.WEAK)
    stage = Stage.CODE if is_only_a_code else meaning.stage
    return msgspec.structs.replace(meaning, start=encoded.starts[start], end=encoded.ends[end - 1], stage=stage)


def _is_why_it_failed(core: str, before: str) -> bool:
    """Return whether it follows a status, or is about a quota and follows the word for an error: "429 limit hit"."""
    return before[-1:] == STATUS or ("q" in core and before.endswith(("e|", "5|", "E|")))


def _is_no_sentence(encoded: Encoded, form: Form, place: tuple[int, int, int], *, is_code: bool) -> bool:
    """Return whether it is part of another sentence, of a page about limits, of a list, or of another owner."""
    letters, (begin, start, end) = encoded.letters, place
    lead, core, after = letters[begin:start], letters[start:end], letters[end : end + 2 * NEAR]
    if form.name == "limited-to" and "Y" not in lead:
        return True  # a page about limits
    if CLOSED in lead or letters[begin - 1] not in STARTS:
        return True
    if letters[begin - 1] in _WITHIN and _is_spoken_of(letters[max(0, begin - LEAD) : begin]):
        return True
    if lead.startswith("<>") or ("8" in core and {"Y", "P", "I", "p"}.isdisjoint(lead + core + after[:NEAR])):
        return True  # "retry on …"; "0 requests left" by itself is progress
    if form.name in ("none-left", "used-all") and after.startswith(("<x", "<_x")):
        return True  # "no messages left in the queue"
    if form.name == "throttled" and "#r" in lead:
        return True  # a report: "120 requests were throttled"
    clause = lead + core + _until(after, "|")
    if _is_of_another(form.name, core, clause, *encoded.beside(start, end, reach=NEAR)):
        return True
    if is_code and _is_a_mere_name(encoded, start, end):
        return True
    if "X" in core and {"Y", "I", "U"}.isdisjoint(clause) and "<" not in after:
        return True  # news: a limit that is gone may have been lifted
    return not form.open_end and not _ends(core, after, is_code=is_code)


def _is_of_another(form: str, core: str, clause: str, before: str, behind: str) -> bool:
    """Return whether it is the limit of something else: of a database, of a build. Builds have budgets too."""
    line = before + core + behind
    if ("F" in core and {"U", "c"}.isdisjoint(core)) or ("k" in core and "z" in line):
        return True
    if "d" in core and not {"$", "u", "n"} & set(line):
        return True
    if {"8", "$"} <= set(core) and {"u", "I", "U", "m", "b", "-"}.isdisjoint(line):
        return True
    if "S" in core and ("P" in clause or ">#" in behind):
        return True  # of a calendar: "for 14:00", "on this day"
    if {"$", "d"} & set(core) or (form == "lacking" and "q" in core):
        if OTHER in before + clause and not _OUR_MONEY.search(line):
            return True
    elif OTHER in (clause if {"w", "r", "c"} & set(clause) else before + clause):
        # It names what nobody knows. What is counted, as in "too many messages", does not say whose limit it is.
        shown_in = clause.replace(core, "", 1) if form == "too-many" else clause
        if not (_OURS.search(shown_in) or ("D" not in core and _WHEN.search(line))):
            return True  # shops have demand too, and ask to try again
    # The head of the line says whose it is, and what follows, unless this clause says that it is yours.
    scope = before + clause if {"Y", "u", "I"} & set(clause) else clause + line
    return "F" in scope and not {"c", "R", "U"} & set(scope)


def _is_spoken_of(before: str) -> bool:
    """Return whether a status or an aside is spoken of: "the API answers with 429", "retry on 429", "returns it ("."""
    return "!" in before.rpartition(BEGIN)[2] or "<" in before[-3:]


def _is_a_mere_name(encoded: Encoded, start: int, end: int) -> bool:
    """Return whether an identifier is in a listing or is a metric: no other word says that it is an error."""
    before, behind = encoded.beside(*encoded.identifier(start, end), reach=NEAR)
    return (OTHER in before + behind or behind[:1] in ("#", "8")) and {"e", "4", "E"}.isdisjoint(before + behind)


def _is_the_code_of_an_error(encoded: Encoded, start: int, end: int) -> bool:
    """Return whether an identifier is what an error is called.

    "Error: QuotaLimit", "request failed (quota_exceeded)", `{"error": {"type": "QUOTA_EXCEEDED"`, and the name of an
    exception before its words.
    """
    start, end = encoded.identifier(start, end)
    before, behind = encoded.beside(start, end, reach=LEAD)
    is_exception = encoded.letters[end - 1] == Concept.ERROR.value and behind[:1] == BEGIN
    if is_exception and before.rstrip(BEGIN + CLOSED + OTHER) == "":
        return {"z", "F"}.isdisjoint(behind) and OTHER not in encoded.letters[start:end]
    if not {"_", "!", "F"}.isdisjoint(before + behind):
        return False
    if before.rstrip(_PUNCTUATION).endswith(_CALLERS):
        # `code=quota_exceeded id=3`, but not `errors.quota_exceeded = …`
        return behind[:1] != CLOSED if before.endswith(CLOSED) else behind[:1] in _AFTER_A_CODE
    return before.endswith(_VALUE) and not _ERRORS.isdisjoint(before)


def _is_any_code(encoded: Encoded, kind: Kind, place: tuple[int, int, int]) -> bool:
    """Return whether a code may be that of any service: `LimitExceeded`, and `InsufficientFunds` of a bank."""
    begin, start, end = place
    core = encoded.letters[start:end]
    if kind == "billing" and "q" not in core:
        return frozenset("uIUbm4").isdisjoint("".join(encoded.beside(start, end, reach=LEAD)))
    return core == "ls" and begin == start


def _beginning(letters: str, start: int) -> int:
    place = start
    while place > 1 and start - place < LEAD and letters[place - 1] not in STARTS:
        place -= 1
    return place


def _ends(core: str, after: str, *, is_code: bool) -> bool:
    """Return whether a statement may end here. Names in a list, as in code, state nothing."""
    # "5 concurrent E2B sandboxes": an adjective is followed by what it is about.
    after = after[:4].lstrip("x#") if core.endswith("c") else _TAIL.sub("", after[:4])
    return not after or (after[0] in _RIGHT and not (is_code and after[0] == ","))


def _until(after: str, ends: str) -> str:
    return next((after[:place] for place, letter in enumerate(after) if letter in ends), after)


def _meaning(form: str, core: str, lead: str, after: str) -> Statement:
    """Compose what is limited, its state and its period. The order of the questions is the order of what decides."""
    # Names in quotes and addresses may say what is limited, the words after "try again in" never do.
    near = _until(after[:NEAR], '|"<!')
    around = lead[-6:] + core + near
    close = lead[-2:] + core + near[:3]
    periods = lead[-6:] + core + _until(after, "|<!")
    is_short, is_long = "p" in periods or "G" in periods, "P" in periods

    def means(kind: Kind, *, is_vague: bool = False, is_metered: bool = False, **fields: Any) -> Statement:
        """Return the statement. A vague one names nothing that is limited: it counts only with words of its end.

        A metered one names the short period of a rate: no demand of others is the reason then.
        """
        stage = Stage.SIZE if kind == "none" else Stage.METERED if is_metered else STAGE_OF[kind]
        return Statement(name=f"grammar.{form}", kind=kind, stage=Stage.WEAK if is_vague else stage, **fields)

    if form == "busy":
        return means("overloaded")
    if form == "oversize":
        return means("rate" if "R" in lead[-3:] else "none")
    if _is_size(core, close) and not (is_short or is_long):
        return means("none")
    if form == "none-left" and {"w", "1"} & set(core) and not {"c", "S"} & set(around):
        return means("overloaded")  # nobody is there to serve it, which is no cap on what may run
    is_of_workers = {"w", "1"} & set(close) and not (is_short or is_long) and not {"u", "R"} & set(core)
    if "c" in around or "S" in core or is_of_workers:
        return means("platform", cause="concurrency")
    if {"$", "d", "6"} & set(lead[-1:] + core) and not is_short:
        return means("billing")
    if is_short:
        return means("rate", long_wait=HOUR, is_metered=not {"p", "G"}.isdisjoint(core))
    if is_long:
        return means("quota", short_wait=HOUR if "R" in around else None)
    if "k" in core:
        return means("quota", short_wait=FIVE_MINUTES) if "Yk" in core else means("overloaded")
    if "R" in close or form in ("throttled", "too-many", "too-high", "limited-to"):
        return means("rate", long_wait=HOUR)
    if form == "accounts-spent":
        is_of_a_model = "0" in core and "m" in near  # none of the accounts offers it
        return means("overloaded" if is_of_a_model else "quota", short_wait=FIVE_MINUTES, is_vague="0" in core)
    if "9" in around and {"r", "q", "u"} & set(around):
        return means("billing")
    if form == "named-error":
        return means("rate" if "R" in core else "quota", is_vague=True, short_wait=FIVE_MINUTES, long_wait=HOUR)
    if "u" in close or "I" in around:
        return means("quota")
    if "q" in core and form == "lacking":
        return means("billing")
    if "q" in core:
        is_vague = "l" not in core and "Y" not in lead and {"Y", "m", "U"}.isdisjoint(close)
        return means("quota", short_wait=FIVE_MINUTES, is_vague=is_vague)
    if "r" in close:
        return means("rate", long_wait=HOUR)
    return means("quota", is_vague="Y" not in lead + core and not (lead == "" and core in ("ls", "las")))


def _is_size(core: str, close: str) -> bool:
    """Return whether it is the size of one thing. "Token limit" by itself is that of a conversation or a request."""
    if "R" in close or "c" in core:
        return False
    return "z" in close or ("l" in core and any(name in close for name in ("ml", "bl")))


GRAMMAR = Grammar(LEXICON)
