"""The words of limits, each under the one concept that it stands for.

Here: single words and pairs of words, in the languages that CLIs print. Never here: sentences. A form (`forms.py`)
is written over concepts, so a word that is added here works in every form at once.
"""

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
