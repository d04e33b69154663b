"""What any provider may say about limits, in the words that most of them share.

Rules only; what belongs to one provider stands in its own file.
"""

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

RULES: tuple[Rule, ...] = (
    # --- platform limits -----------------------------------------------------------------------
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
        rf"(?: thread| pool| count| spawn)? (?:limit|cap|maximum)(?: has been| was| is)? {_DONE}",
        cause="concurrency",
    ),
    rule(
        "platform.concurrency",
        "platform",
        rf"<10>(?:concurrency(?: limit)?|(?:number of )?{_PARALLEL} {_WORKERS}(?: limit)?)"
        rf"(?: (?:has|have|was|is|been|quota)){{0,2}} {_DONE}|<12>(?:max|maximum)(?: \S{{1,30}}){{0,2}} concurrency"
        r"|high concurrency(?: usage)?|reduce (?:your )?concurrency|exceeded <3>(?:concurrency|concurrent)",
        cause="concurrency",
    ),
    rule(
        "platform.concurrency-cjk", "platform", r"并发[^\n]{0,14}(?:超|上限|限制|过高|过多)|同時[^\n]{0,10}(?:上限|制限)",
        anywhere=True, cause="concurrency",
    ),
    # --- billing -------------------------------------------------------------------------------
    rule(
        "billing.spend-cap",
        "billing",
        r"<14>(?:hit|reached|exceeded)(?: (?:your|its|the|their|a|an))?(?: \S{1,30}){0,3} (?:spend(?:ing)?|billing|usage-based)"
        r"(?: hard)? (?:cap|limit|quota|budget)|increase your spend cap|billing_hard_limit_reached",
    ),
    rule(
        "billing.no-credits",
        "billing",
        r"<6>(?:credit balance (?:is )?too low|insufficient (?:account )?(?:balance|credits?|funds)|not enough (?:credits?|balance|funds)"
        r"|(?:is|are|you're|ran|run) out of (?:\w+ ){0,2}credits|no (?:remaining |available )?credits (?:left|remaining|available)"
        r"|credits? (?:\w+ ){0,2}(?:exhausted|depleted|used up|ran out|too low))"
        r"|<8>(?:used|consumed|exhausted|spent) (?:all|up)(?: \w+){0,4} credits|<4>(?:requires?|needs?) more credits"
        r"|<12>can only afford|out_of_credits|insufficient_(?:balance|credits|funds)",
    ),
    rule("billing.no-credits-cjk", "billing", r"余额不足|餘額不足|欠费|请充值|残高不足|잔액 ?부족", anywhere=True),
    rule(
        "billing.no-plan",
        "billing",
        r"<4>(?:no active subscription|(?:membership|subscription|trial|plan)(?: has| is)? (?:expired|inactive|cancell?ed|past due))"
        r"|(?:\d{3} )?payment[ _]required|billing_(?:not_active|error)|<8>(?:requires|without) (?:an active|a paid) (?:subscription|plan)",
    ),
    rule("billing.budget", "billing", r"budget (?:has been|was|is) exceeded|<3>exceeded (?:your|its|the) budget|budget_exceeded"),
    rule("billing.usage-pattern", "billing", r"<20>fair[- ]us(?:ag)?e policy"),
    rule("billing.raise-limit", "billing", r"request a limit increase from your (?:owner|admin\w*)", stage=Stage.EXACT),
    rule("billing.prompt-unaffordable", "billing", r"(?:\d{3} )?prompt tokens limit exceeded"),
    rule("billing.key-limit", "billing", r"key (?:credit |spend )?limit exceeded"),
    # --- quota windows -------------------------------------------------------------------------
    rule(
        "quota.you-hit-your-limit",
        "quota",
        rf"{_NOT_IF}(?:sorry, |oops! |error: )?you(?:'ve| have)?(?: \([^)\n]{{0,60}}\))?(?: have)?(?: now| already)? (?:hit|reached|exceeded|exhausted|used up|maxed out|consumed|run out of|used all(?: of)?)"
        r" (?:your|the|all|its|this|our)(?: (?!rate|spend|spending|context|length|file|size|turn|step|tool|iteration|concurren\w*|maximum|max|billing|budget|current|api rate)[\w.\-'/]{1,40}){0,6}?"
        r" (?:limits?|quota|allowance|usage|messages|requests|prompts)(?! of \d)",
        unless=r"(?:hit|reached|exceeded|exhausted) (?:your|the|a)(?: \S{1,30}){0,3} rate limit",
    ),
    rule(
        "quota.limit-reached",
        "quota",
        rf"{_NOT_IF}<4>(?:usage|session|weekly|daily|monthly|hourly|5[- ]?h(?:ou)?r?|opus|sonnet|haiku|fable|plan|subscription|message|premium requests?|credit|free|per (?:day|week|month|hour))"
        rf"(?: \S{{1,30}}){{0,2}}? (?:limit|quota|allowance)s?(?: has been| was| is| have been)? {_DONE}",
        unless=r"limit reached [^\n]{0,40}(?:minute|second)s? ago",
    ),
    rule("quota.limit-resets", "quota", r"limit reached\s?[·,.-]?\s?resets?", open_end=True),
    rule(
        "quota.spent",
        "quota",
        rf"<3>(?:subscription|free|allocated|individual|plan|account|personal|team|oauth|premium|coding plan|{_PERIOD})"
        rf"(?: \w+){{0,2}}? (?:quota|usage|allowance)(?: has been| was| is)? {_DONE}",
        unless=r"spending quota",
    ),
    rule("quota.out-of", "quota", r"(?:you're|you are|you have run|you've run) out of (?:\w+ ){0,5}(?:usage|messages|requests|prompts|tokens)"),
    rule("quota.period-rate-limit", "quota", rf"<12>(?:{_PERIOD}|tpd|rpd) (?:token |request |usage )?rate limit"),
    rule("quota.regain", "quota", r"you will regain access on"),
    rule(
        "quota.code",
        "quota",
        r"usage_limit_(?:reached|exceeded)|\w{0,30}usage_?limit_?error|user_(?:weekly|monthly|daily|global)_rate_limited|quota_exhausted"
        r"|terminalquotaerror|weekly_limit_\w+|usage_limit|quota_limit_reached",
    ),
    rule(
        "quota.localised",
        "quota",
        r"(?:atingiu|alcançou|alcanzado|superado|excedido|atteint|dépassé|raggiunto|superato|erreicht|überschritten)[^\n.]{0,30}"
        r"(?:limite?|límite|limit|kontingent)[^\n.]{0,16}(?:mensagens|uso|usage|utilis\w+|utilizzo|mensajes|messages)"
        r"|(?:limite|límite)[^\n.]{0,4} (?:de|d'|di) ?(?:uso|mensagens|utilis\w+|utilizzo)[^\n.]{0,20}(?:atingid|alcanzad|superad|atteint|raggiunt)"
        r"|nutzungslimit[^\n.]{0,20}(?:erreicht|überschritten)|(?:使用|用量|用户|额度|配额|套餐)[^\n]{0,6}(?:上限|限额|耗尽|用完|已达|超出)|已达到[^\n]{0,20}(?:使用|用量)[^\n]{0,6}上限"
        r"|利用(?:上限|制限)[^\n]{0,10}(?:達|超)|사용(?:량)? ?(?:한도|제한)[^\n]{0,12}(?:도달|초과)",
        anywhere=True,
    ),
    # --- overloaded ----------------------------------------------------------------------------
    rule(
        "overloaded.said",
        "overloaded",
        r"<4>(?:model|engine|server|service|system|api|backend|provider|endpoint|gpu|openai|anthropic|cluster)(?:'s servers)?s?"
        r"(?: (?:is|are|may be|was|were|down or))?(?: (?:currently|temporarily|now|down or)){0,2} overloaded"
        r"|(?:repeated )?(?:\d{3} )?overloaded(?: errors?)?|overloaded_?error|server_is_overloaded|<3>servers are down or overloaded",
    ),
    rule(
        "overloaded.capacity",
        "overloaded",
        r"<6>(?:(?:at|over)(?: full| its)? capacity|no capacity available|capacity (?:exceeded|unavailable|is full)|insufficient capacity|model_capacity_exhausted)"
        r"|(?:http )?\d{3} model_capacity_exhausted|capacity_exceeded",
    ),
    rule(
        "overloaded.demand",
        "overloaded",
        r"<8>(?:experiencing|due to|because of|under|during)(?: \w+)? (?:high|heavy|increased|peak|elevated) (?:demand|load|traffic|volume)",
    ),
    rule(
        "overloaded.busy",
        "overloaded",
        r"<5>(?:servers?|service|system|llm|engine|model)(?: (?:is|are))?(?: (?:currently|too|temporarily|very))? busy"
        r"|no slots available|maximum pending requests|queue_exceeded|(?:服务器?|系统|模型)[^\n]{0,6}(?:繁忙|过载|负载)|サーバー[^\n]{0,10}混",
    ),
    rule("overloaded.slow-down", "overloaded", r"slow_down"),
    # --- rate limits ---------------------------------------------------------------------------
    rule(
        "rate.limit-exceeded",
        "rate",
        rf"{_NOT_IF}<3>rate[- ]limits?(?: (?:is|was|has been|have been))? (?:reached|exceeded|hit)",
        unless=r"duckduckgo",
    ),
    rule(
        "rate.you-hit-rate-limit",
        "rate",
        r"<14>(?:hit|reached|exceeded|exceed|exhausted)(?: (?:a|the|your|this|its|our))?(?: \S{1,30}){0,4}? (?:rate|call|request|token)[- ]limit",
    ),
    rule(
        "rate.limited",
        "rate",
        r"<6>(?:you|request|requests|account|accounts|account\(s\)|key|user|ip)(?: (?:have|has|is|are|was|were|been|being)){0,3} rate[- ]limited"
        r"|rate[- ]limited(?: by| upstream)?|<2>is temporarily rate[- ]limited",
    ),
    rule("rate.too-many", "rate", r"<6>too many (?:requests|tokens|messages|api calls|calls|attempts|connect attempts)"),
    rule("rate.sent-too-fast", "rate", r"request rate increased too quickly|<4>requests? too (?:frequent(?:ly)?|fast|quickly)|slow down", cause="starts"),
    rule(
        "rate.per-minute",
        "rate",
        r"<12>(?:tokens|requests|queries|calls|images) per (?:minute|min|second|hour)(?: limit)? (?:exceeded|reached)|throttling: (?:tpm|rpm|rps)"
        r"|<14>(?:max|organization) (?:rpm|tpm|request)s?: \d",
    ),
    rule("rate.allowed-within-time", "rate", r"<8>(?:tokens|requests) allowed within a given time"),
    rule("rate.limited-to", "rate", r"<12>limited to \d+ (?:api )?(?:calls|requests|queries)(?: ?/ ?| per )(?:minute|second|hour)"),
    rule("quota.limited-to", "quota", r"<12>limited to \d+ (?:api )?(?:calls|requests|queries)(?: ?/ ?| per )(?:day|week|month)"),
    rule("rate.slow-pool", "rate", r"using the slow pool", anywhere=True),
    rule("rate.retries-spent", "rate", r"<6>(?:maximum retry attempts|retries) (?:reached|exhausted|exceeded) (?:for|due to|because of) rate[- ]limit\w*"),
    rule("rate.google-quota", "rate", r"<3>resource (?:has been )?exhausted|<8>exceeded your current quota|<2>quota exceeded for", open_end=True),
    rule(
        "rate.localised",
        "rate",
        r"速率限制|请求频率|请求过于?频繁|请求过多|限流|頻率限制|レート ?(?:が)?制限|요청[^\n]{0,12}제한|속도 제한|limitad[oa][^\n.]{0,12} (?:tasa|taxa|velocidad)"
        r"|(?:límite|limite) de (?:tasa|taxa|velocidade?|frecuencia|débit|frequenza)|ratenbegrenz\w*|ratenlimit|débit[^\n.]{0,20}limité|limité[^\n.]{0,20}débit|limite di frequenza",
        anywhere=True,
    ),
    # --- codes: wrappers lie, so they come after all sentences -----------------------------------
    rule("overloaded.code", "overloaded", r"overloaded_error|unavailable_error", stage=Stage.CODE),
    rule(
        "rate.code",
        "rate",
        r"rate_?limit_?(?:error|exceeded|reached)\w*|rate_limited|rate_limit|too_many_requests|\w{0,40}toomanyrequests\w{0,20}"
        r"|throttlingexception|throttling(?:\.\w{1,30})?|throttled|resource_?exhausted|requestlimitexceeded|(?:[\w.]{0,80}\.)?ratelimit(?:exceeded)?error",
        stage=Stage.CODE,
    ),
    rule(
        "overloaded.status",
        "overloaded",
        r"(?:(?:api |server )?error:? ?|http(?: error)? |status(?:[ _]code)?:? ?|code: ?|\(|\[)(?:503|529)\b|(?:503|529) (?:service|server|overloaded|\S{0,3}\{)",
        stage=Stage.WEAK,
    ),
    rule("overloaded.unavailable", "overloaded", r"<4>(?:temporarily|service|currently) unavailable|unavailable", stage=Stage.WEAK),
    rule(
        "rate.status",
        "rate",
        r"(?:<3>(?:api |server |provider )?error(?: code)?:? ?|http(?: error)? |(?:last |with )?status(?:[ _]code)?:? ?|code: ?|\(|\[|request rejected \()?429\b(?!\d|\.\d)",
        stage=Stage.WEAK,
        unless=r"rejected \(429\) [^\n]{0,4}retrying without",
    ),
    # --- auth ----------------------------------------------------------------------------------
    rule(
        "auth.refused",
        "auth",
        r"<10>(?:invalid|incorrect|missing|expired|revoked)(?: \w+)? (?:x-)?(?:api[- ]key|token|credentials|authentication)|authentication_(?:error|failed)|unauthenticated"
        r"|<4>401 unauthorized|(?:please |you (?:need|have) to )?(?:log|sign) in(?: first| again)?|(?:you're |you are )?not logged in|oauth token (?:has )?(?:expired|been revoked)",
    ),
)  # fmt: skip
