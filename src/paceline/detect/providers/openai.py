"""OpenAI and others that answer in its shape: what needs to be known of them to read it. Rules only."""

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
