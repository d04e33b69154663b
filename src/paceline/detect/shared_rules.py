"""What any provider may print about limits, in the words, headers and events that most of them share.

Here: the shared rules, standard headers, and what programs print when nobody answered; also the services with an API
and no CLI of their own, OpenAI (with those that answer in its shape) and Z.ai. Never here: what belongs to one CLI.
`<4>` in a core allows up to four more words of the same sentence before it (see `provider.py`).
"""

import re

from paceline.detect.observation import HOUR, Stage
from paceline.detect.provider import NO_LOGIN, Provider, Rule, ZoneRule, rule

# Nobody answered: names lookup, refused and lost connections, certificates and time-outs, in the words of the HTTP
# clients that agent CLIs are built on. An answer of a proxy (502, 503, 504) is an overload.
# A status means that somebody answered. The other words name what is not the provider: servers of tools, updates,
# reports of errors and of use.
_NOT_THE_PROVIDER = (
    r"\b(?:status(?: code)?|http(?:/[\d.]{1,3})?|api error|error|code)[ :=]{1,3}\(?[45]\d\d\b"
    r"|\b5\d\d (?:bad|gateway|service)|\b50[0234]\b"
    r"|bad gateway|gateway time-?out|upstream|decoding response body|reading the server response"
    r"|\bmcp\b|\bhooks?\b|\blsp\b|telemetry|statsig|sentry|otlp|opentelemetry|exporter|metrics|analytics"
    r"|auto-?update|updater?|check(?:ing)? for updates|npm registry|marketplace|plugins?|extensions?\b"
)
_CONNECT = r"(?:(?:re)?connect(?:ion|ing)?|reach|contact)"

NETWORK: tuple[Rule, ...] = (
    rule(
        "network.name",
        "unreachable",
        r"<12>(?:getaddrinfo|enotfound|eai_again|eai_nodata|err_name_not_resolved)",
        r"<12>could ?n[o']t resolve (?:host|proxy)|<8>unable to resolve host|<8>name resolution failed",
        r"<12>(?:temporary failure in name resolution|name or service not known|nodename nor servname provided)",
        r"<12>(?:no such host|failed to (?:lookup address|resolve )|dns (?:error|lookup failed)|no address associated)",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.refused",
        "unreachable",
        r"<12>(?:econnrefused|ehostunreach|ehostdown|enetunreach|enetdown|connectionrefused|failedtoopensocket)",
        r"<12>connection (?:was )?refused|<12>no connection could be made",
        r"<8>not connected to the internet|<4>no internet connection",
        r"<12>(?:network|host|no route to host)(?: is)? (?:unreachable|down)|no route to host",
        rf"<8>(?:unable to|failed to|could ?n[o']t|cannot|can't) {_CONNECT}(?: to)?"
        r" (?:the )?(?:\S{1,40} )?(?:api|servers?|services?|provider|endpoint|host|url|internet|websocket)",
        r"unable to connect[.:] is the computer able to access",
        r"<8>all connection attempts failed|<8>failed to establish a new connection|<8>cannot connect to host",
        r"<12>err_(?:internet_disconnected|network|connection_\w{4,20}|(?:proxy|tunnel)_connection_failed)",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.lost",
        "unreachable",
        r"<12>(?:econnreset|econnaborted|epipe|und_err_socket)",
        r"<12>connection (?:was )?(?:reset|aborted)(?: by peer)?|<8>broken pipe",
        r"<8>socket hang up|<8>socket connection was closed unexpectedly|<8>other side closed",
        r"<8>server disconnected(?: without sending a response)?|<8>empty reply from server",
        r"<8>(?:remote end |connection )closed (?:connection )?(?:without response|before (?:message|headers))",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.certificate",
        "unreachable",
        r"<12>self[- ]signed certificate|<12>unable to (?:get local issuer certificate|verify the first certificate)",
        r"<12>certificate (?:verify failed|has expired|signed by unknown authority|verification failed|problem)",
        r"<12>(?:ssl|tls)(?: certificate)? (?:handshake|connect|error|verification|certificate)",
        r"<12>(?:cert_has_expired|unable_to_\w{4,40}|\w{0,20}self_signed_cert\w{0,20}|err_tls_\w{4,40})",
        r"<12>certificate_verify_failed",
        r"<12>before secure tls connection was established|<12>wrong version number",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.time-out",
        "unreachable",
        r"<12>(?:etimedout|esockettimedout|und_err_connect_timeout|und_err_headers_timeout)",
        r"<8>(?:connect(?:ion)?|tls handshake|socket) time(?:d[- ]?|-)?out",
        r"<4>(?:request|operation) timed out",
        r"<8>dial tcp[^\n]{0,120} i/o timeout|<12>exceeded while awaiting headers",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.no-answer",
        "unreachable",
        r"<4>connection error(?=\W|$)",
        r"<8>fetch failed|<4>failed to fetch(?!\s\w)",
        r"<12>error sending request(?: for url)?",
        r"<4>network (?:error|connection (?:failed|lost|error))",
        r"<8>(?:api)?connection(?:refused|reset|aborted)?error",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
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

# What the grammar cannot compose: a state that no word for a limit names.
SENTENCES: tuple[Rule, ...] = (
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
        r"<12>can only afford",
        r"(?:\d{3} )?payment[ _]required",
    ),
    rule(
        "billing.suspended",
        "billing",
        r"(?:service|account|key|subscription|project) (?:(?:has been|is|was) )?(?:paused|suspended)",
        body_only=True,
    ),
    rule(
        "billing.status",
        "billing",
        r"402 (?:payment|insufficient|prompt|you|your|this|status code)\b",
        open_end=True,
    ),
    rule(
        "quota.wait-for-reset",
        "quota",
        r"(?:\d\. )?(?:<6>)wait for (?:your )?(?:usage )?(?:limits?|quota) to reset",
        r"access resets at",
        r"you will regain access on",
        r"please (?:return|come back|try again) (?:tomorrow|next (?:week|month))",
    ),
    rule("overloaded.down", "overloaded", r"<3>servers are down or overloaded", r"maximum pending requests"),
    rule("rate.retrying", "rate", r"retrying after rate limit"),
    rule(
        "rate.ask-for-more",
        "rate",
        r"<6>(?:request|submit) a (?:quota|rate limit) increase",
        open_end=True,
        stage=Stage.WEAK,
    ),
    rule(
        "billing.cap-of-a-key",
        "billing",
        r"key (?:credit |spend )?limit exceeded",
        r"request a limit increase from your \w+|increase your spend cap",
    ),
    rule(
        "rate.sent-too-fast",
        "rate",
        r"<4>requests? too (?:frequent(?:ly)?|fast|quickly)",
        r"<8>increased too quickly",
        r"<4>slow down|high frequency usage",
        cause="starts",
    ),
)

# Error codes and bare statuses come after all sentences: wrappers are wrong more often than the words inside.
CODES: tuple[Rule, ...] = (
    rule(
        "billing.code",
        "billing",
        r"workspace_\w{3,20}_(?:usage_limit_reached|credits_depleted)",
        r"billing_(?:hard_limit_reached|not_active|error)|budget_exceeded|exceeded_current_quota_error|arrearage",
        r"monthlylimiterror|creditserror|userlimiterror|accountoverdueerror",
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
        "overloaded.code",
        "overloaded",
        r"\w{0,30}overloaded_error|server_?(?:is_)?overloaded|unavailable_error|slow_down|service_?unavailable\w{0,20}",
        r"<3>(?:exceeded retry limit, last status:|attempt \d{1,3} failed with status) 5\d\d",
        open_end=True,
        stage=Stage.CODE,
    ),
    rule(
        "rate.code",
        "rate",
        r"rate_?limit_?(?:error|exceeded|reached)\w*",
        r"[\"'=\[(]rate_limit(?:ed)?[\"'\])]",
        r"too_many_requests",
        r"\w{0,40}toomanyrequests\w{0,20}",
        r"throttl(?:ing|ed)(?:exception|error|\.\w{1,30})",
        r"resource_?exhausted",
        r"(?:[\w.]{0,80}\.)?\w{0,30}ratelimit(?:exceeded)?(?:error|exception)\w{0,20}",
        stage=Stage.CODE,
        unless=_ANOTHER_SERVICE,
        long_wait=HOUR,
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
        r"429 (?:too many|status code|provider returned error|free|rate|you|resource|quota|\{|\"|$)",
        r":http_status/429",
        stage=Stage.WEAK,
        unless=r"rejected \(429\) [^\n]{0,4}retrying without",
        long_wait=HOUR,
    ),
    # What CLIs say without any request, because nobody has logged in.
    rule(
        NO_LOGIN,
        "auth",
        r"not logged in\W{1,4}(?:please )?run /login",
        r"invalid api key\W{1,4}(?:please )?run /login",
        r"no auth type is selected",
        r"no authentication information found",
        r"<4>401 unauthorized\W{1,4}missing bearer or basic authentication(?: in header)?",
    ),
    rule(
        "auth.refused",
        "auth",
        r"<10>(?:invalid|incorrect|missing|expired|revoked)(?: \w+)?"
        r" (?:x-)?(?:api[- ]key|token|credentials|authentication)(?: provided)?",
        r"<3>api key (?:is )?(?:not valid|invalid|expired|missing|required)",
        r"authentication_(?:error|failed)|unauthenticated",
        r"<4>401 unauthorized",
        r"(?:please |you (?:need|have) to )(?:log|sign) in(?: first| again)?",
        r"(?:log|sign) in (?:first|again|to (?:continue|use))",
        r"(?:you're |you are )?not logged in",
        r"oauth token (?:has )?(?:expired|been revoked)",
    ),
)

RULES: tuple[Rule, ...] = NETWORK + OWN + SENTENCES + CODES

CHINA_TIME = "Asia/Shanghai"
KANA = re.compile(r"[\u3040-\u30ff]")
"""Only in Japanese, which shares its other characters with Chinese."""

PROVIDER = Provider(
    name="generic",
    rules=RULES,
    errors=frozenset({"error"}),
    headers=r"retry-after(?:-ms)?|x-retry-after|ratelimit(?:-policy|-limit|-remaining|-reset)?",
    header_words=frozenset({"ratelimit"}),
    # Whatever a provider puts before it: `acme-ratelimit-remaining-requests`.
    buckets=r"(?:[a-z]{1,20}-){0,2}ratelimit-(?P<what>remaining|reset|limit)(?:-(?P<bucket>[\w-]{1,40}))?",
    # Chinese services print China time and do not name the zone.
    zones=(ZoneRule(zone=CHINA_TIME, pattern=re.compile(r"[\u4e00-\u9fff]{3}"), unless=KANA),),
    model_limit=(
        r"(?:this|selected|specific to this|that) model"
        r"|limit (?:reached )?for (?!your|the|organization|\d)[\w./`-]{3,60}"
        r"|rate limit reached for (?:model )?`?(?!organization|default|requests)\w"
    ),
)


# --- OpenAI and those that answer in its shape -------------------------------------------------

_GOOGLE_OR_ALIYUN = r"ai\.google|generativelanguage|googleapis|aliyun|dashscope|token-limit|resource_exhausted"
# At these providers an insufficient quota is a rate limit or a window.
_NOT_MONEY = frozenset({"gemini-cli", "gemini-api", "vertex", "antigravity-api", "antigravity-cli", "qwen-code"})

OPENAI_RULES: tuple[Rule, ...] = (
    rule(
        "openai.request-too-large", "none", r"request too large for (?:model )?\S{1,60} in organization", anywhere=True
    ),
    # Daily buckets refill all the time: "per day" with a wait of minutes is a rate, and no spent window.
    rule(
        "openai.daily-bucket",
        "quota",
        r"rate limit reached for [^\n]{1,200}? on (?:input |output )?(?:requests|tokens|images) per (?:day|hour|week)",
        anywhere=True,
        stage=Stage.EXACT,
        short_wait=HOUR,
    ),
    rule(
        "openai.quota-is-money",
        "billing",
        r"insufficient_quota",
        r"<8>(?:exceeded your current quota|quota exceeded)[,.]? (?:please )?check your plan",
        unless=_GOOGLE_OR_ALIYUN,
        not_for=_NOT_MONEY,
    ),
)

OPENAI = Provider(
    name="openai",
    rules=OPENAI_RULES,
    errors=frozenset({"response.failed", "response.incomplete"}),
    headers=r"(?:llm_provider-)?x-ratelimit-.+",
    header_words=frozenset({"ratelimit"}),
    buckets=r"x-ratelimit-(?P<what>remaining|reset|limit)(?:-(?P<bucket>[\w-]{1,40}))?",
)

# --- Z.ai --------------------------------------------------------------------------------------

ZAI_RULES: tuple[Rule, ...] = (
    rule(
        "zai.code", "quota", r"code\W{1,4}(?:1308|1310|1316)\b|\[(?:1308|1310|1316)\]", anywhere=True, stage=Stage.CODE
    ),
)

ZAI = Provider(
    name="zai",
    rules=ZAI_RULES,
    # Its resets are in China time without a zone, also where a proxy translated the sentence.
    zones=(
        ZoneRule(
            zone=CHINA_TIME,
            providers=frozenset({"zai-api", "zai"}),
            pattern=re.compile(r"\[1308\]|\"code\":\s?\"?1308"),
            unless=KANA,
        ),
    ),
)
