"""OpenAI, Azure, Groq, OpenRouter and others that answer in OpenAI's shape: their sentences. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

HOUR = 3600.0
_GOOGLE_OR_ALIYUN = r"ai\.google|generativelanguage|googleapis|aliyun|dashscope|token-limit|resource_exhausted"
_NOT_MONEY = ("gemini-cli", "gemini-api", "vertex", "antigravity-api", "antigravity-cli", "qwen-code")

RULES: tuple[Rule, ...] = (
    rule(
        "openai.request-too-large", "none", r"request too large for (?:model )?\S{1,60} in organization", anywhere=True
    ),
    # Its daily buckets refill all the time: "per day" with a wait of minutes is a rate.
    rule(
        "openai.rate-limit-reached",
        "quota",
        r"rate limit reached for [^\n]{1,200}? on (?:input |output )?(?:requests|tokens|images) per (?:day|hour|week)",
        anywhere=True,
        stage=Stage.EXACT,
        short_wait=HOUR,
    ),
    rule("openai.insufficient-quota", "billing", r"insufficient_quota", unless=_GOOGLE_OR_ALIYUN, not_for=_NOT_MONEY),
    rule(
        "openai.check-your-plan",
        "billing",
        r"<8>(?:exceeded your current quota|quota exceeded)[,.]? (?:please )?check your plan",
        unless=_GOOGLE_OR_ALIYUN,
        not_for=_NOT_MONEY,
    ),
    rule(
        "azure.rate-limit",
        "rate",
        r"have exceeded (?:the )?(?:\w+ )?rate limit of your current",
        anywhere=True,
        stage=Stage.EXACT,
    ),
    rule("openrouter.free-per-day", "quota", r"<4>free-models-per-day\S{0,30}", anywhere=True, window="daily"),
    rule("openrouter.requests-per-day", "quota", r"limit_rpd\b", anywhere=True, window="daily"),
    rule("openrouter.upstream", "rate", r"<2>rate-limited upstream"),
    rule("openrouter.provider-error", "rate", r"429 provider returned error", stage=Stage.WEAK),
    rule("together.rate-limit", "rate", r"your rate limit is \d", anywhere=True),
    rule("bedrock.per-day", "quota", r"<12>too many tokens per day", window="daily"),
    rule("ollama.slots", "overloaded", r"<4>(?:llm busy|server busy)"),
)
