"""The forms of a statement about a limit, over the concepts of its words.

Here: which sequences state that something is spent, missing, refused or busy. Never here: words (`lexicon.py`), or
what a statement means for the account (`statements.py`).
"""

import re

import msgspec

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
