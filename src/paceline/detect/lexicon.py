"""The words of limits, each under the one concept that it stands for, and a text as a string of concepts.

Here: single words and pairs of words, in the languages that CLIs print; one letter for each word of a text, with its
place. Never here: which sequences of concepts are a statement. A form (`grammar.py`) is written over concepts, so a
word that is added here works in every form at once.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

import msgspec


class Concept(StrEnum):
    """What a word stands for. The value is its letter in an encoded text."""

    # What is limited
    LIMIT = "l"
    WINDOW = "V"  # of a period, or of the context
    QUOTA = "q"
    CURRENT = "Q"  # "your current quota": money at some providers, a rate at others
    USAGE = "u"
    COUNTED = "r"  # requests: what a rate or a window counts
    TOKENS = "b"  # also the size of a conversation
    WORKER = "w"
    AGENT = "1"  # a worker that only a CLI of ours has
    SLOT = "S"
    PARALLEL = "c"
    MONEY = "$"
    ARREARS = "6"  # money that is owed: a state and what it is about in one word
    TOTAL = "9"  # of all time: no wait frees it
    BUDGET = "d"  # of money, but also of bytes, errors and milliseconds
    CAPACITY = "k"
    LOAD = "D"
    RATE = "R"
    ACCOUNT = "n"
    OVERSIZE = "Z"
    SIZE = "z"  # of one request, file or conversation: no wait changes it
    # Its period
    SHORT = "p"
    RATE_NAME = "G"  # RPM: a rate with its period
    LONG = "P"
    # Its state
    SPENT = "s"
    GONE = "X"  # spent, where it follows what is spent: "spent 3 of your credits" is a meter
    LACKING = "i"
    USED = "v"
    OUT = "o"
    NONE = "0"
    NIL = "8"  # the number
    LEFT = "L"
    ALL = "A"
    TAKEN = "B"
    TOO_MANY = "M"
    THROTTLED = "T"
    LIMITED = "j"
    LIMITING = "J"  # that there is a limit, not that it was met
    COOLING = "C"
    BUSY = "O"
    HIGH = "H"
    WAITING = "g"
    AT = "@"
    OVER = "2"
    DUE = "y"
    NEEDED = "K"
    # Words between them
    YOUR = "Y"
    PLAN = "I"  # whose limit it is: that of a plan, not of a minute
    MODEL = "m"
    AUXILIARY = "a"
    HOUR = "h"  # a period after a number, else a word
    OF = "f"
    TO = "t"
    CONNECTIVE = ">"
    UNTIL = "<"  # what follows states when it ends
    ERROR = "e"
    REFUSED = "5"  # that a call failed: its reason follows
    FILLER = "_"  # it names nothing
    REMEDY = "-"  # what a customer can do about it
    PRODUCT = "U"  # of a provider of models: nobody else's limit
    # What makes them harmless
    WE = "W"
    PROSE = "!"
    FOREIGN = "F"  # whose limit it is: that of a database, a build, a calendar
    NOT = "N"


OTHER = "x"
"""A word without a concept."""

_WORDS: dict[Concept, str] = {
    Concept.LIMIT: """
        limit limits limitation limitations cap caps ceiling límite limite limites límites limiti
        nutzungslimit wochenlimit tageslimit monatslimit лимит sınırı 上限 限额 限制 制限 한도 제한""",
    Concept.WINDOW: "window windows",
    Concept.ACCOUNT: """
        account accounts organization organisation org workspace credential credentials key keys providers channel
        channels deployment deployments 账户 账号 帐户 渠道""",
    Concept.QUOTA: """
        quota quotas allowance allowances allocation allotment entitlement grant kontingent cuota cota 额度 配额
        할당량""",
    Concept.USAGE: """
        usage messages message prompts prompt interactions interaction overage overages uso mensagens mensajes
        utilisation utilizzo nutzung использования 使用 用量 利用 套餐 사용 사용량""",
    Concept.COUNTED: """
        request requests call calls query queries generations generation images invocations invocation completions
        completion inferences neurons requêtes
        anfragen solicitudes requisições запросов 请求 調用 调用 访问 요청""",
    Concept.TOKENS: "token tokens",
    Concept.WORKER: """
        child children thread threads worker workers job jobs stream streams
        instances processes tasks sessions conversations runs task parallelism""",
    Concept.AGENT: "agent agents subagent subagents",
    Concept.SLOT: "slot slots",
    Concept.PARALLEL: """
        concurrency concurrent concurrently parallel simultaneous simultaneously inflight conn conns 并发 同時""",
    Concept.MONEY: """
        credit credits balance funds billing spend spending payment wallet cost costs money
        prepaid acu acus invoice invoices créditos crédits crediti guthaben saldo solde
        余额 餘額 残高 充值 잔액 кредитов баланс 用户额度 令牌额度 剩余额度 账户额度
        資源包 资源包""",
    Concept.ARREARS: "arrears arrearage 欠费",
    Concept.TOTAL: "total lifetime 总",
    Concept.BUDGET: "budget budgets",
    Concept.CAPACITY: "capacity compute 容量",
    Concept.LOAD: "demand load traffic volume 负载 混雑 访问量 请求量",
    Concept.RATE: """
        rate rates frequency throughput tasa taxa velocidad velocidade frecuencia débit frequenza raten 速率 频率
        流控 レート 속도 частота скорость""",
    Concept.SIZE: """
        context length size sizes output file files upload uploads turn turns step steps iteration iterations
        depth tool recursion line lines character characters chars memory heap disk time timeout retry retries
        attempt attempts goal buffer maxbuffer stack nesting watchers watcher loop column page attachment
        attachments body payload entity header headers redirect redirects argument arguments deadline duration
        large larger long longer input storage connection websocket socket secondary pull bandwidth descriptor
        descriptors cpu pod pods column stdout stderr""",
    Concept.SHORT: """
        minute minutes min second seconds sec burst bursts minuto minuten 每分钟 分钟 分間 每秒 秒级""",
    Concept.RATE_NAME: "rpm tpm rps tps qps qpm ipm itpm otpm",
    Concept.LONG: """
        day days daily today week weekly month monthly hourly 5h 24h rpd tpd perday perweek permonth
        fortnightly yearly cycle 24-hour semanal hebdomadaire wöchentliches wöchentliche settimanale diario diaria
        diário diária quotidien quotidienne journalière tägliche tägliches giornaliero mensual mensal mensuel
        mensuelle monatliche monatliches mensile дневной недельный месячный
        每日 每周 每月 小时 今日 今天 当日 本周 本月 日次 主間""",
    Concept.SPENT: """
        reached reach reaches exceeded exceeds exceed exceeding hit hits exhausted exhausts exhaust depleted
        met consumed crossed surpassed maxed expended triggered detected atingiu atingido alcançou alcanzado
        superado excedido atteint atteinte dépassé raggiunto superato erreicht überschritten превышен
        превышена исчерпан исчерпана aşıldı agotado agotada agotaste esgotado esgotada épuisé épuisée esaurito esaurita
        aufgebraucht erschöpft 受 されました 超出 超过 超限 已达 达到 用尽 用完 耗尽 触发 初過 超過 達し 도달 초과""",
    Concept.GONE: "gone spent finished",
    Concept.LACKING: "insufficient lacking overdue negative inadequate unpaid empty 不足 不够 부족 недостаточно",
    Concept.USED: "used",
    Concept.OUT: "out",
    Concept.NONE: "no zero",
    Concept.LEFT: "left remaining available remains",
    Concept.ALL: "all every any both",
    Concept.TAKEN: "taken occupied busy full",
    Concept.THROTTLED: """
        throttled ratelimited 限流 limitée ratenbegrenzt ratenbegrenzung ratenlimit 过于频繁 过快""",
    Concept.LIMITED: "limited limitado limitada",
    Concept.LIMITING: "limiting throttling ratelimiting",
    Concept.DUE: "due because during experiencing",
    Concept.COOLING: "cooldown",
    Concept.BUSY: "overloaded overload saturated congested 繁忙 忙 过载 饱和 過負荷 不可用",
    Concept.HIGH: "high heavy peak increased elevated excessive 过高 过多 过大",
    Concept.WAITING: "waiting waited",
    Concept.AT: "at under",
    Concept.OVER: "over beyond",
    Concept.NEEDED: "requires require required needs",
    Concept.YOUR: """
        your you've you you're us du dein deine deinem ihr ihre ihrer sie vous votre vos ton tu tus su sus tua suas você
        seu sua 您 你""",
    Concept.PLAN: """
        free allocated included premium individual personal trial plan subscription membership opus sonnet
        haiku fable oauth tier session""",
    Concept.WE: "we we're we've i i'm",
    Concept.MODEL: """
        llm model models server servers service services system engine api backend provider endpoint cluster
        upstream gateway 模型 服务器 服务 系统 引擎 上游""",
    Concept.AUXILIARY: """
        has have been was were is are be being now already currently temporarily fully completely again has's
        still may too very 当前 目前 暂时 已经""",
    Concept.OF: "of de di do du d'",
    Concept.TO: "to",
    Concept.HOUR: "hour hours hr h",
    Concept.CONNECTIVE: "for on and or but with by while as set per via please that which",
    Concept.REMEDY: "upgrade purchase buy subscribe recharge 购买 续订 升级",
    Concept.UNTIL: """
        in again try reset resets resetting refresh refreshes renews replenishes replenished renewed refreshed refill
        refills before until wait
        retry retrying come return resume resumes back available-in next tomorrow midnight noon
        monday tuesday wednesday thursday friday saturday sunday 稍后 稍候 重试 明日 明天 重置""",
    Concept.ERROR: "error errors code",
    Concept.REFUSED: "failed failure rejected refused reason desc",
    Concept.FILLER: """
        the a an this these those it it's its their our there user users team teams more most
        maximum max number pool 该 此 本""",
    Concept.PRODUCT: """
        ai anthropic claude openai chatgpt gpt codex gemini vertex bedrock azure groq grok mistral codestral cohere
        deepseek kimi moonshot glm zhipu qwen dashscope minimax openrouter litellm copilot windsurf kiro cline aider
        ollama llama cerebras sambanova perplexity huggingface antigravity opencode jules devin""",
    Concept.PROSE: """
        when whenever where what if once after unless whether how why so i'll i've let let's add added adds fix
        fixed fixes handle handles handled handling should could will can say says said docs test tests
        returns returned returning like about avoid prevent ensure detect detects check checks catch implement
        configure simulate mock throw throws raise raises example case cases means mean indicates suggests
        improve improves improved bump revert reverts registered deprecated
        previously formerly earlier approaching close near nearing soon almost until'll might must
        documentation documented describes explain explains won't don't isn't hasn't haven't wasn't aren't
        doesn't didn't shows shown typically usually often sometimes generally normally 如果 即使 支持 增加 添加
        新增 修复 优化 配置 处理 机制 策略 忽略 管理 提示 显示 恢复 测试 接近""",
    Concept.NOT: "not never without",
    Concept.FOREIGN: """
        bundle bundles asset assets chunk chunks artifact artifacts runner runners executor executors core cores
        build builds pipeline pipelines deploy deploys commit commits repository repositories lfs
        vcpu vcpus subnet autoscaling vm vms bucket buckets snapshot snapshots namespace nodes cron lambda
        database databases postgres mysql redis kafka replication tablespace row rows clients connections partition
        backup backups export exports download downloads certificate certificates domains dns maps geocoding
        email emails mail mails mailbox smtp sms recipients newsletter post posts comments friend friends
        device devices printer seats parking meeting meetings room rooms appointment appointments booking bookings
        calendar vacation leave order otp login password signup ticket tickets submission submissions wallets
        driver drivers truck trucks guest guests employees students license licenses licence
        card cards coupon coupons orders checkout withdrawal withdrawals transfer transfers gas steps calories calorie
        voucher vouchers article articles performance fixture fixtures scenario demo campaign ad ads player players
        sales circuit
        登录 注册 搜索 下载 上传 短信 邮件 验证码 密码 存储 空间 文件 数据库 订单 设备 评论""",
}

_PAIRS: dict[Concept, str] = {
    Concept.OVERSIZE: "too-large too-long too-big",
    Concept.SPENT: "used-up maxed-out run-out ran-out",
    Concept.LACKING: "not-enough too-low too-few too-small",
    Concept.NONE: "doesn't-have don't-have not-have",
    Concept.CURRENT: "current-quota",
    Concept.TOO_MANY: "too-many too-much",
    Concept.TAKEN: "in-use",
    Concept.COOLING: "cooling-down cool-down",
    Concept.PARALLEL: "in-flight",
    Concept.THROTTLED: "slow-down",
    Concept.LONG: "billing-period billing-cycle this-hour",
    Concept.REMEDY: "top-up",
    Concept.LIMIT: "лимит-запросов лимит-использования",
    Concept.FILLER: "in-order looks-like seems-like",
    Concept.OUT: "run-out ran-out running-out",
    Concept.SHORT: "per-minute per-second per-min per-sec per-hour",
    Concept.AUXILIARY: "as-of right-now longer-have",
    Concept.CONNECTIVE: "from-https from-http",
    Concept.FOREIGN: """
        seat-limit queue-pool thread-pool connection-pool connection-slot connection-slots sending-limit
        test-account test-card test-user test-wallet disk-space actions-minutes""",
}


class Lexicon(msgspec.Struct, frozen=True, dict=True):
    """Words and pairs of words with their concepts."""

    words: Mapping[str, str]
    pairs: Mapping[tuple[str, str], str]

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The words of scripts that put no spaces between words, the longest first."""
        return tuple(sorted((word for word in self.words if word >= "\u3040"), key=len, reverse=True))

    def words_of(self, *concepts: Concept) -> frozenset[str]:
        """Return the words of some concepts."""
        return frozenset(word for word, concept in self.words.items() if concept in concepts)

    @cached_property
    def finder_of_others(self) -> re.Pattern[str]:
        """Finds those words within longer ones."""
        return re.compile("|".join(map(re.escape, self.others)) or r"(?!)")

    @cached_property
    def seconds(self) -> frozenset[str]:
        """The second words of all pairs."""
        return frozenset(second for _, second in self.pairs)


def _read(table: Mapping[Concept, str]) -> dict[str, str]:
    return {word: concept.value for concept, words in table.items() for word in words.split()}


LEXICON = Lexicon(
    words=_read(_WORDS),
    pairs={
        (first, second): concept
        for pair, concept in _read(_PAIRS).items()
        for first, _, second in [pair.partition("-")]
    },
)


BEGIN = "|"
"""A statement may begin here."""
CLOSED = '"'
"""A statement ends here, and none begins: words in quotes, paths, addresses."""
COMMA = ","
NUMBER = "#"
STATUS = "4"
"""A number that may be an HTTP status: a statement may begin after it."""
WHOLE = "%"
"""100% and more, 15 of 15."""
SHARE = "&"
"""Less than 100%, 3/15: nothing is spent."""
LEVEL = "E"
"""The level of a log line: a statement may begin after it."""
OPEN, CLOSE = "()"
"""An aside: a statement may begin in it or after it, and may continue after it."""
STARTS = BEGIN + STATUS + LEVEL + OPEN + CLOSE
MAX_WORDS = 24_000
"""Words of a text that are encoded: as many as the kept ends of a huge text can have."""

_TOKEN = re.compile(
    r"""(?P<word>[^\W\d_]+(?:'[^\W\d_]+)?(?:[-_](?=[^\W\d_]))?)
    |(?<![\d/])(?P<part>\d{1,9}(?:\.\d{1,2})?)\s?(?:/|of|out\sof)\s?(?P<ratio>\d{1,9}(?:\.\d{1,2})?)(?![\d/.:])
    |(?P<broke>[$＄](?:-\d[\d.]{0,12}|0(?:\.0{1,6})?(?![\d.])))
    |(?P<number>\d[\d.,]*\d|\d)(?P<percent>%)?
    |(?P<line>\n)
    |(?P<stop>[.!?;](?=\s|$)|[·|{}\[\]>])
    |(?P<aside>[()])
    |(?P<colon>:(?!\d))
    |(?P<dash>(?<=\s)[-–—](?=\s))
    |(?P<quote>["'])
    |(?P<equals>=)
    |(?P<comma>,)
    |(?P<inside>(?<!\s)/|/(?!\s)|[\\@`~<.])""",
    re.X,
)
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\WA-Z\d_]+")
_CAMEL = re.compile(r"[^\W\d_]*[a-z][A-Z][a-z]")
_QUOTES = "\"'`"
_BEFORE_QUOTE = ":=({[,"
# The body of an answer follows its status: `403 Forbidden "Your team has used all of its credits"`.
_AFTER_STATUS = re.compile(r"\b[45]\d\d(?:\s[A-Z][a-z]{1,20}){0,4}$")
LONGEST_REASON = 64
"""Characters before a quote that are read: an HTTP status and its reason."""
# Words in quotes after which the sentence continues: `Chapter 4: "Too Many Requests" and its friends`.
_TITLE = re.compile(r"""(?<=:\s)(["'])[^"'\n]{1,80}\1\s[a-z]+\s(?!=)""")
_NAMED = frozenset({"error", "message", "msg", "err", "reason", "detail", "text", "desc"})
_LEVELS = frozenset({"ERROR", "WARN", "WARNING", "FATAL"})
_PARTS_OF_NAMES = frozenset({Concept.MODEL.value, Concept.CONNECTIVE.value, Concept.PROSE.value, Concept.TO.value})
_FIRST_WITHOUT_SPACES = "\u3040"


class Encoded:
    """The concepts of a text as letters, from its beginning, and for each where it begins and ends.

    `joined`: "1" within an identifier, "-" within words that hyphens join, else "0".
    """

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.starts = [0]
        self.ends = [0]
        self._text = text
        self._lexicon = lexicon
        self._letters = [BEGIN]
        self._joined = ["0"]
        self._line_ends: list[int] = []
        self._add_tokens()
        self.letters = "".join(self._letters)
        self.joined = "".join(self._joined)

    def beside(self, start: int, end: int, *, reach: int) -> tuple[str, str]:
        """Return up to `reach` letters before `start` and after `end`, within their lines."""
        after = bisect_left(self._line_ends, start)
        first = self._line_ends[after - 1] + 1 if after else 0
        following = bisect_left(self._line_ends, end)
        last = self._line_ends[following] if following < len(self._line_ends) else len(self.letters)
        return self.letters[max(first, start - reach) : start], self.letters[end : min(last, end + reach)]

    def identifier(self, start: int, end: int) -> tuple[int, int]:
        """Return where the identifier begins and ends that these letters are a part of."""
        after = self.joined.find("0", end)
        return self.joined.rfind("0", 0, start) + 1, len(self.joined) if after < 0 else after

    def _add_tokens(self) -> None:
        text, letters = self._text, self._letters
        before = ""
        for token in _TOKEN.finditer(text):
            if len(letters) >= MAX_WORDS:
                break
            kind = token.lastgroup
            if kind == "word":
                before = self._add_word(token, before)
                continue
            if kind == "line":
                self._line_ends.append(len(letters))
            is_quoted = letters[-1] == CLOSED and text[token.start() - 1] in _QUOTES
            self._add(_letter_of(kind, token, text, before, is_quoted=is_quoted), token.start(), token.end())
            before = ""

    def _add_word(self, token: re.Match[str], before: str) -> str:
        """Add a word. Return it if the next one may make a pair of it, else ''."""
        raw = token[0]
        word = raw.rstrip("-_")
        start = token.start()
        if not raw.isascii() and any(letter >= _FIRST_WITHOUT_SPACES for letter in word):
            return self._add_without_spaces(word, start)
        is_joined = self._is_joined_to(start, "_")
        if not raw.islower():
            if word in _LEVELS and not is_joined:
                self._add(LEVEL, start, token.end())
                return ""
            if _CAMEL.match(word):
                return self._add_humps(word, start, before)
            word = word.lower()
        joined = "1" if raw[-1] == "_" or is_joined else "0"
        if joined == "0" and (raw[-1] == "-" or self._is_joined_to(start, "-")):
            joined = "-"
        return self._add_one(word, start, before, joined)

    def _add_without_spaces(self, word: str, start: int) -> str:
        """Add the known words of a script without spaces, and what stands before them: it says whose limit it is.

        What is between them is no word of its own.
        """
        pieces = list(self._lexicon.finder_of_others.finditer(word))
        if pieces and pieces[0].start() > 1:
            self._add(OTHER, start, start + pieces[0].start())
        for piece in pieces:
            self._add(self._lexicon.words[piece[0]], start + piece.start(), start + piece.end())
        if not pieces:
            self._add(OTHER, start, start + len(word))
        return ""

    def _add_humps(self, word: str, start: int, before: str) -> str:
        """Add the words of an identifier like `TooManyRequests`."""
        for hump in _HUMP.finditer(word):
            before = self._add_one(hump[0].lower(), start + hump.start(), before, "1")
        return before

    def _add_one(self, word: str, start: int, before: str, joined: str) -> str:
        end = start + len(word)
        if before and word in self._lexicon.seconds and (concept := self._lexicon.pairs.get((before, word))):
            self._letters[-1], self.ends[-1] = concept, end
            return ""
        letter, last = self._lexicon.words.get(word, OTHER), self._letters[-1]
        if letter in _PARTS_OF_NAMES and last in (OTHER, Concept.PRODUCT) and self._is_joined_to(start, "-"):
            letter = OTHER  # the end of a name: `inventory-service`, `kimi-for-coding`
        if letter == Concept.HOUR:
            letter = Concept.LONG.value if last in (NUMBER, STATUS) else OTHER
        self._add(letter, start, end, joined)
        return word

    def _add(self, letter: str, start: int, end: int, joined: str = "0") -> None:
        if letter:
            self._letters.append(letter)
            self.starts.append(start)
            self.ends.append(end)
            self._joined.append(joined)

    def _is_joined_to(self, start: int, mark: str) -> bool:
        return start > 0 and self._text[start - 1] == mark


def _letter_of(kind: str | None, token: re.Match[str], text: str, before: str, *, is_quoted: bool) -> str:
    """Return the letter of a token that is not a word: a number, a sign or a quote."""
    match kind:
        case "number" | "percent":
            number = token["number"]
            if token["percent"]:
                return WHOLE if len(number.partition(".")[0]) >= 3 else SHARE
            if number == "0":
                return Concept.NIL.value
            return STATUS if len(number) == 3 and number[0] in "45" and not is_quoted else NUMBER
        case "broke":
            return Concept.NONE.value
        case "ratio":
            return WHOLE if float(token["part"]) >= float(token["ratio"]) else SHARE
        case "line" | "stop" | "colon" | "dash":
            return BEGIN
        case "quote":
            left = text[max(0, token.start() - LONGEST_REASON) : token.start()].rstrip()
            opens = left[-1:] in _BEFORE_QUOTE or bool(_AFTER_STATUS.search(left))
            return BEGIN if opens and not _TITLE.match(text, token.start()) else CLOSED
        case "equals":
            return BEGIN if before in _NAMED else CLOSED
        case "aside":
            return token[0]
        case "comma":
            return COMMA
    return CLOSED
