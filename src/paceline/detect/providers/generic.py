"""What any provider may print about limits, in the words, headers and events that most of them share.

Here: the shared rules, standard headers, and CLIs of which nothing special is known. Never here: what belongs to one
provider. `<4>` in a core allows up to four more words of the same sentence before it (see `rules.py`).
"""

import re

from paceline.detect.notices import LastLine
from paceline.detect.provider import AgentCli, EventRules, HeaderRules, NoticeRules, Provider, ZoneRule
from paceline.detect.providers.anthropic import ASSUMED_FORMAT
from paceline.detect.providers.network import is_client_error
from paceline.detect.rules import Rule, Stage, rule

# Not a statement that it happened: "when the limit is reached", "if you've hit your limit".
_NOT_IF = r"(?!(?:when|if|once|after|until|unless|whether|how|why|because|so|users?|we|i|they)\b)"
_WORKERS = (
    r"(?:child(?:ren)?|sub-?agents?|agents?|sessions?|tasks?|threads?|workers?|runs?|requests?|connections?"
    r"|jobs?|instances?|streams?|conversations?|calls?|generations?)"
)
_PARALLEL = r"(?:active|concurrent|parallel|simultaneous|running|in-flight|background)"
_PERIOD = r"(?:daily|weekly|monthly|hourly|5-hour|5 hour|five-hour|session|24-hour|7-day)"
_DONE = r"(?:reached|exceeded|hit|exhausted|used up|depleted|met)"
_HAS_BEEN = r"(?: (?:has been|have been|was|is))?"
# Words between "you have hit your" and "limit" which show that the limit is not that of a window.
_NOT_A_WINDOW = (
    r"rate|spend|spending|context|length|file|size|turn|step|tool|iteration|concurren\w*|maximum|max|billing"
    r"|budget|current"
)
_WHO = (
    r"(?:you(?:'ve| have)?|your (?:organi[sz]ation|team|workspace|account|plan|company)(?: has)?"
    r"|this (?:account|organi[sz]ation|workspace|team) has)"
)
_HIT = r"(?:hit|reached|exceeded|exhausted|used up|maxed out|consumed|run out of|used all(?: of)?|used 100% of)"
_KIND_OF_LIMIT = (
    r"usage|session|weekly|daily|monthly|hourly|5[- ]?h(?:ou)?r?|opus|sonnet|haiku|fable|plan|subscription|message"
    r"|premium(?: requests?)?|credit|free|per (?:day|week|month|hour)|allocated|individual|account|personal|team|oauth"
)
# GitHub and Docker limit their own clients, in their own words.
_ANOTHER_SERVICE = (
    r"pull rate limit|secondary rate limit|docs\.github\.com/rest"
    r"|rate limit exceeded for (?:user id|installation|\d{1,3}\.\d)"
)
# The words before a status code that make it one: `HTTP 429`, `API Error (529`, `last status: 429`.
_STATUS = r"(?:<3>error(?: code)?|http(?: error)?|<3>status(?:[ _]code)?|code|request rejected):? ?[(\[]?"

# Limits that the user has set: they clear when the user raises them.
OWN: tuple[Rule, ...] = (
    rule(
        "none.own-setting",
        "none",
        r"(?:token budget exhausted|goal budget reached|max session turns)",
        r"in (?:your |the )?(?:settings?|config)\.(?:json|toml|ya?ml)",
        anywhere=True,
    ),
)

PLATFORM: tuple[Rule, ...] = (
    rule(
        "platform.too-many-parallel",
        "platform",
        rf"<6>(?:max(?:imum)?|too many)(?: number of)?(?: \d{{1,4}})? {_PARALLEL}(?: \w+)?? {_WORKERS}",
        cause="concurrency",
    ),
    rule(
        "platform.worker-limit",
        "platform",
        rf"{_NOT_IF}<4>(?:agent|sub-?agent|thread|worker|child(?:ren)?|concurrency|parallelism|slot|process)s?"
        rf"(?: thread| pool| count| spawn)? (?:limit|cap|maximum){_HAS_BEEN} {_DONE}",
        cause="concurrency",
    ),
    rule(
        "platform.concurrency",
        "platform",
        rf"<10>(?:concurrency(?: limit)?|(?:number of )?{_PARALLEL} {_WORKERS}(?: limit)?)"
        rf"(?: (?:has|have|was|is|been|quota)){{0,2}} {_DONE}",
        r"<12>(?:max|maximum)(?: \S{1,30}){0,2} concurrency",
        r"<12>exceeded (?:\S{1,30} ){0,3}(?:concurrency|concurrent)",
        r"high concurrency(?: usage)?",
        r"<6>reduce (?:your )?concurrency",
        r"max_parallel_requests",
        r"\S{0,12}并发[^\n]{0,14}(?:超|上限|限制|过高|过多)",
        r"\S{0,12}同時[^\n]{0,10}(?:上限|制限)",
        open_end=True,
        cause="concurrency",
    ),
)

BILLING: tuple[Rule, ...] = (
    rule(
        "billing.spend-cap",
        "billing",
        r"<14>(?:hit|reached|exceeded)(?: (?:your|its|the|their|a|an))?(?: \S{1,30}){0,3}"
        r" (?:spend(?:ing)?|billing|usage-based)(?: hard)? (?:cap|limit|quota|budget)",
        r"key (?:credit |spend )?limit exceeded",
        r"request a limit increase from your \w+|increase your spend cap",
        r"budget (?:has been|was|is) exceeded",
        r"<3>exceeded (?:your|its|the) budget",
    ),
    rule(
        "billing.no-credits",
        "billing",
        r"<6>credit balance (?:is )?too low",
        r"<6>insufficient (?:account )?(?:balance|credits?|funds)",
        r"<6>not[- ]enough[- ](?:credits?|balance|funds)",
        r"<6>balance (?:is )?insufficient|<8>overdue (?:balance|payment)",
        r"(?:<6>(?:is|are|you're|ran|run) |^)out of (?:\w+ ){0,2}credits",
        r"<6>no (?:remaining |available )?credits (?:left|remaining|available)",
        r"<6>credits? (?:\w+ ){0,2}(?:exhausted|depleted|used up|ran out|too low)",
        r"<8>(?:used|consumed|exhausted|spent) (?:all|up)(?: \w+){0,5} credits",
        r"<8>exceeded your (?:\w+ ){0,3}credits",
        r"<4>(?:requires?|needs?) more credits",
        r"<8>(?:doesn't|does not|don't) have any credits",
        r"<12>can only afford",
        r"\S{0,12}(?:余额不足|餘額不足|欠费|请充值|残高不足|잔액 ?부족)",
        open_end=True,
    ),
    rule(
        "billing.no-plan",
        "billing",
        r"<4>no active subscription",
        r"<4>(?:membership|subscription|trial|plan)(?: has| is)? (?:expired|inactive|cancell?ed|past due)",
        r"<8>(?:requires|without) (?:an active|a paid) (?:subscription|plan)",
        r"<3>account(?: \S{1,60}){0,3} is (?:suspended|deactivated|disabled|not active)",
        r"<6>billing (?:to be|must be|is not|isn't) (?:enabled|active)",
        r"<8>doesn't have a free (?:quota )?tier",
        r"<6>does not comply with the fair us(?:ag)?e policy",
        r"402 (?:payment|insufficient|prompt|you)",
        r"(?:\d{3} )?payment[ _]required",
    ),
    rule(
        "billing.code",
        "billing",
        r"workspace_\w{3,20}_(?:usage_limit_reached|credits_depleted)",
        r"insufficient_(?:\w{1,12}_)?(?:balance|credits|funds)|insufficient_g1_credits_balance|out_of_credits",
        r"billing_(?:hard_limit_reached|not_active|error)|budget_exceeded|exceeded_current_quota_error|arrearage",
        r"monthlylimiterror|creditserror|userlimiterror|accountoverdueerror",
    ),
)

QUOTA: tuple[Rule, ...] = (
    rule(
        "quota.you-hit-your-limit",
        "quota",
        rf"{_NOT_IF}(?:sorry, |oops! |error: )?{_WHO}(?: \([^)\n]{{0,60}}\))?(?: have)?(?: now| already)? {_HIT}"
        rf" (?:your|the|all|its|this|our)(?: (?!(?:{_NOT_A_WINDOW})\b)[\w.\-'/()]{{1,40}}){{0,6}}?"
        r" (?:limits?|quota|allowance|usage|messages|requests|prompts)",
        r"you have no (?:\w{1,20} )?(?:quota|usage|requests)(?: left| remaining)?",
        unless=r"(?:hit|reached|exceeded|exhausted) (?:your|the|a)(?: \S{1,30}){0,3} rate limit",
    ),
    rule(
        "quota.limit-reached",
        "quota",
        rf"{_NOT_IF}<4>(?:{_KIND_OF_LIMIT})(?:/\w{{1,20}})?(?: \S{{1,30}}){{0,2}}? (?:limit|quota|allowance)s?"
        rf"(?: for(?: \S{{1,30}}){{1,3}}?)?{_HAS_BEEN} {_DONE}",
        rf"<3>(?:{_KIND_OF_LIMIT})(?: \w+){{0,2}}? usage{_HAS_BEEN} {_DONE}",
        rf"<3>(?:model )?quota limit{_HAS_BEEN} {_DONE}",
        rf"your (?:\S{{1,30}} ){{0,4}}?(?:quota|allowance) (?:has been|was|is) {_DONE}",
        r"<2>quota (?:exceeded|exhausted) for (?:today|this (?:billing )?(?:period|month|week|day|cycle))",
        unless=r"spending quota",
    ),
    rule("quota.bare-limit-reached", "quota", r"limit reached(?=\s?[·–—-]|,?\s?resets?)", open_end=True),
    rule(
        "quota.out-of",
        "quota",
        r"(?:you're|you are|you have run|you've run) out of (?:\w+ ){0,5}(?:usage|messages|requests|prompts|tokens)",
    ),
    rule(
        "quota.wait-for-reset",
        "quota",
        r"(?:\d\. )?(?:<6>)wait for (?:your )?(?:usage )?(?:limits?|quota) to reset",
        r"access resets at",
        r"you will regain access on",
        r"please (?:return|come back|try again) tomorrow",
    ),
    rule(
        "quota.period-rate-limit",
        "quota",
        rf"<12>(?:{_PERIOD}|tpd|rpd) (?:token |request |usage )?rate limit",
        r"<12>limited to \d+ (?:api )?(?:calls|requests|queries)(?: ?/ ?| per )(?:day|week|month)",
    ),
    rule(
        "quota.per-day",
        "quota",
        r"quota exceeded[^\n]{0,200}(?:per day|perday)|\w{0,80}perday\w{0,60}",
        r"<4>free-models-per-day\S{0,30}|limit_rpd",
        r"<12>too many (?:tokens|requests) per day",
        open_end=True,
        window="daily",
    ),
    rule(
        "quota.code",
        "quota",
        r"\w{0,30}usage_?limit(?:_?(?:reached|exceeded|error))?",
        r"user_(?:weekly|monthly|daily|global)_rate_limited",
        r"quota_exhausted|quota_limit_reached|terminalquotaerror|weekly_limit_\w+",
        r"(?:organization|account|free)_quota_exceeded|plan_limit_reached",
    ),
    rule(
        "quota.localised",
        "quota",
        r"(?:atingiu|alcançou|alcanzado|superado|excedido|atteint|dépassé|raggiunto|superato|erreicht|überschritten)"
        r"[^\n.]{0,30}(?:limite?|límite|limit|kontingent)[^\n.]{0,16}"
        r"(?:mensagens|uso|usage|utilis\w+|utilizzo|mensajes|messages)",
        r"(?:limite|límite)[^\n.]{0,4} (?:de|d'|di) ?(?:uso|mensagens|utilis\w+|utilizzo)[^\n.]{0,20}"
        r"(?:atingid|alcanzad|superad|atteint|raggiunt)",
        r"nutzungslimit[^\n.]{0,20}(?:erreicht|überschritten)",
        r"(?:使用|用量|用户|额度|配额|套餐)[^\n]{0,6}(?:上限|限额|耗尽|用完|已达|超出)",
        r"已达到[^\n]{0,20}(?:使用|用量)[^\n]{0,6}上限",
        r"利用(?:上限|制限)[^\n]{0,10}(?:達|超)",
        r"사용(?:량)? ?(?:한도|제한)[^\n]{0,12}(?:도달|초과)",
        anywhere=True,
    ),
)

OVERLOADED: tuple[Rule, ...] = (
    rule(
        "overloaded.said",
        "overloaded",
        r"<4>(?:model|engine|server|service|system|api|backend|provider|endpoint|gpu|openai|anthropic|cluster)s?"
        r"(?: (?:is|are|may be|was|were))?(?: (?:currently|temporarily|now)){0,2} overloaded",
        r"<3>servers are down or overloaded",
        r"(?:repeated )?\b\d{3} overloaded(?: errors?)?",
        r"<3>\w{0,30}(?:error|exception)(?:[:(-]| -){1,2} ?(?:\d{3} )?overloaded",
        r"message\W{1,4}overloaded",
        r"^overloaded(?=[.!]? ?(?:$|[\[(·]))",
        r"overloadederror",
    ),
    rule(
        "overloaded.capacity",
        "overloaded",
        r"<12>(?:at|over|out of)(?: full| its)? capacity",
        r"<6>no capacity available",
        r"<6>capacity (?:exceeded|unavailable|is full)",
        r"<6>(?:insufficient capacity|capacity constraints)",
        r"(?:http )?(?:\d{3} )?model_capacity_(?:exhausted|exceeded)",
        r"capacity_exceeded|nocapacity",
    ),
    rule(
        "overloaded.demand",
        "overloaded",
        r"(?:we(?:'re| are) (?:currently )?)?<8>(?:experiencing|due to|because of|under|during)(?: \w+)?"
        r" (?:(?:high|heavy|increased|peak|elevated) (?:demand|load|traffic|volume)|overload)",
    ),
    rule(
        "overloaded.busy",
        "overloaded",
        r"<5>(?:servers?|service|system|llm|engine|model)(?: (?:is|are))?(?: (?:currently|too|temporarily|very))? busy",
        r"no slots available",
        r"maximum pending requests",
        r"queue_exceeded",
        r"\S{0,8}(?:服务器?|系统|模型)[^\n]{0,6}(?:繁忙|过载|负载)",
        r"(?:访问|请求)量过大",
        r"サーバー[^\n]{0,10}混",
    ),
)

RATE: tuple[Rule, ...] = (
    rule(
        "rate.limit-exceeded",
        "rate",
        rf"{_NOT_IF}<3>rate[- ]limit(?:s|ing)?{_HAS_BEEN} (?:reached|exceeded|hit|persisted|detected)",
        unless=_ANOTHER_SERVICE,
    ),
    rule(
        "rate.you-hit-rate-limit",
        "rate",
        r"<24>(?:hit|reached|exceeded|exceed|exhausted)(?: (?:a|the|your|this|its|our))?(?: \S{1,30}){0,4}?"
        r" (?:rate|call|request|token)[- ]limit",
        unless=rf"{_ANOTHER_SERVICE}|context window",
    ),
    rule(
        "rate.limited",
        "rate",
        r"<6>(?:you|request|requests|account|accounts|account\(s\)|key|user|ip|provider)"
        r"(?: (?:have|has|is|are|was|were|been|being)){0,3} rate[- ]limited",
        r"rate[- ]limited(?: by| upstream)?",
        r"<2>is temporarily rate[- ]limited",
        r"<4>limiting requests",
        r"retrying after rate limit",
    ),
    rule(
        "rate.too-many",
        "rate",
        r"<6>too many (?:requests|tokens|messages|api calls|calls|attempts|connect attempts|connections)",
    ),
    rule(
        "rate.sent-too-fast",
        "rate",
        r"request rate increased too quickly",
        r"<4>requests? too (?:frequent(?:ly)?|fast|quickly)",
        r"high frequency usage",
        r"<4>slow down",
        cause="starts",
    ),
    rule(
        "rate.per-minute",
        "rate",
        r"<12>(?:tokens|requests|queries|calls|images) per (?:minute|min|second|hour)(?: limit)? (?:exceeded|reached)",
        r"<12>limited to \d+ (?:api )?(?:calls|requests|queries)(?: ?/ ?| per )(?:minute|second|hour)",
        r"throttling: (?:tpm|rpm|rps)",
        r"<14>(?:max|organization) (?:rpm|tpm|request)s?: \d",
    ),
    rule(
        "rate.localised",
        "rate",
        r"(?:受|达到|超出|超过|触发)[^\n]{0,6}(?:速率|频率|限流)|(?:请求|访问|调用)(?:次数)?过于?(?:频繁|多|快)|频率过高",
        r"レート ?(?:が)?制限",
        r"요청[^\n]{0,12}제한|속도 제한",
        r"limitad[oa][^\n.]{0,12} (?:tasa|taxa|velocidad)",
        r"(?:límite|limite) (?:de|di) (?:tasa|taxa|velocidade?|frecuencia|débit|frequenza)",
        r"(?:requêtes?|demande|débit)[^\n.]{0,24}limitée?s?",
        r"raten(?:begrenz|beschränk)\w*|ratenlimit",
        r"(?:частота|скорость|количество)[^\n.]{0,30}ограничен\w*",
        r"превышен\w{0,2} (?:лимит|ограничени)",
        r"ograniczon\w*[^\n.]{0,20}(?:szybkoś|liczb)\w*",
        r"(?:hız|oran) sınır\w*",
        anywhere=True,
    ),
)

# Error codes and bare statuses come after all sentences: wrappers are wrong more often than the words inside.
CODES: tuple[Rule, ...] = (
    rule(
        "overloaded.code",
        "overloaded",
        r"\w{0,30}overloaded_error|server_?(?:is_)?overloaded|unavailable_error|slow_down",
        r"<3>(?:exceeded retry limit, last status:|attempt \d{1,3} failed with status) 5\d\d",
        open_end=True,
        stage=Stage.CODE,
    ),
    rule(
        "rate.code",
        "rate",
        r"rate_?limit_?(?:error|exceeded|reached)\w*",
        r"rate_limit(?:ed)?",
        r"too_many_requests",
        r"\w{0,40}toomanyrequests\w{0,20}",
        r"throttl(?:ingexception|ed|ing(?:\.\w{1,30})?)",
        r"resource_?exhausted",
        r"requestlimitexceeded",
        r"(?:[\w.]{0,80}\.)?ratelimit(?:exceeded)?error",
        stage=Stage.CODE,
        unless=_ANOTHER_SERVICE,
    ),
    rule(
        "overloaded.status",
        "overloaded",
        rf"{_STATUS}(?:503|529)\b",
        r"(?:503|529) (?:service|server|overloaded|\{)|\[(?:503|529)\](?=:)",
        stage=Stage.WEAK,
    ),
    rule(
        "overloaded.unavailable",
        "overloaded",
        r"<4>(?:temporarily|service|currently) unavailable",
        r"status\W{1,4}unavailable",
        unless=r"resource temporarily unavailable",
        stage=Stage.WEAK,
    ),
    rule(
        "rate.status",
        "rate",
        rf"{_STATUS}429\b(?!\.\d)",
        r"429 (?:too many|provider returned error|free|rate|you|resource|quota|\{|\"|$)",
        r":http_status/429",
        stage=Stage.WEAK,
        unless=r"rejected \(429\) [^\n]{0,4}retrying without",
    ),
    rule(
        "auth.refused",
        "auth",
        r"<10>(?:invalid|incorrect|missing|expired|revoked)(?: \w+)?"
        r" (?:x-)?(?:api[- ]key|token|credentials|authentication)(?: provided)?",
        r"<3>api key (?:is )?(?:not valid|invalid|expired|missing|required)",
        r"authentication_(?:error|failed)|unauthenticated",
        r"<4>401 unauthorized",
        r"(?:please |you (?:need|have) to )?(?:log|sign) in(?: first| again)?",
        r"(?:you're |you are )?not logged in",
        r"oauth token (?:has )?(?:expired|been revoked)",
    ),
)

# The body of a refusal has no other author, so there the plain words are enough, in any order.
_SPENT = r"(?:exceed|reach|exhaust|deplet|replenish|used up|out of|ran out|run out)\w{0,6}"
_FEW = r"\W{1,3}(?:\w{1,30}\W{1,3}){0,4}?"
_LACKING = r"(?:insufficient|not enough|overdue|negative|recharge|top[- ]up|exhausted|depleted|out of|no remaining)"
_MONEY = r"(?:balance|credits?|funds)\b"
BODIES: tuple[Rule, ...] = (
    rule(
        "body.money", "billing", rf"{_LACKING}{_FEW}{_MONEY}|{_MONEY}{_FEW}{_LACKING}", body_only=True, stage=Stage.WEAK
    ),
    rule(
        "body.quota",
        "quota",
        rf"\b(?:quota|allowance){_FEW}{_SPENT}|{_SPENT}{_FEW}(?:quota|allowance)\b",
        body_only=True,
        stage=Stage.WEAK,
        short_wait=300.0,
    ),
    rule(
        "body.overload",
        "overloaded",
        r"\boverload(?:ed)?\b|(?:out of|insufficient|exceeds?) (?:\w{1,20} )?capacity",
        body_only=True,
        stage=Stage.WEAK,
    ),
    rule("body.rate", "rate", r"\brate[- _]?limit(?:ed|ing)\b", body_only=True, stage=Stage.WEAK),
)

RULES: tuple[Rule, ...] = OWN + PLATFORM + BILLING + QUOTA + OVERLOADED + RATE + CODES + BODIES

CHINA_TIME = "Asia/Shanghai"
KANA = re.compile(r"[\u3040-\u30ff]")
"""Only in Japanese, which shares its other characters with Chinese."""

UNKNOWN_CLI = AgentCli(name="", dialect=ASSUMED_FORMAT, stderr=LastLine, is_unanswered=is_client_error)
"""An unknown command. Its stderr may quote any text, so only the last line of a failed run counts."""

PROVIDER = Provider(
    name="generic",
    rules=RULES,
    events=EventRules(errors=frozenset({"error"})),
    headers=HeaderRules(
        names=r"retry-after(?:-ms)?|x-retry-after|ratelimit(?:-policy|-limit|-remaining|-reset)?",
        words=frozenset({"ratelimit"}),
        buckets=r"ratelimit-(?P<what>remaining|reset)(?:-(?P<bucket>[\w-]{1,40}))?",
    ),
    notices=NoticeRules(retry=r"[Rr]etrying (?:in|after|with)\b"),
    # Chinese services print China time and do not name the zone.
    zones=(ZoneRule(zone=CHINA_TIME, pattern=re.compile(r"[\u4e00-\u9fff]{3}"), unless=KANA),),
    clis=tuple(
        AgentCli(name=name, dialect=ASSUMED_FORMAT) for name in ("amp", "crush", "droid", "grok-cli", "kimi-cli")
    ),
    model_limit=(
        r"(?:this|selected|specific to this|that) model"
        r"|limit (?:reached )?for (?!your|the|organization|\d)[\w./`-]{3,60}"
        r"|rate limit reached for (?:model )?`?(?!organization|default|requests)\w"
    ),
)
