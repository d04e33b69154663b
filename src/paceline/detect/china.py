"""Z.ai, Moonshot/Kimi, DashScope/Qwen, MiniMax, Volcengine: their codes and sentences. Rules only."""

from paceline.detect.rules import Rule, Stage, rule

RULES: tuple[Rule, ...] = (
    rule(
        "zai.five-hours",
        "quota",
        r"\[?1308\]?\W{1,4}[^\n]{0,80}(?:limit|上限)|已达到[^\n]{0,4}\s{0,3}\d{1,2}\s{0,3}小时[^\n]{0,8}上限",
        anywhere=True,
    ),
    rule("zai.code", "quota", r"code\W{1,4}13(?:08|10|16)\b", anywhere=True, stage=Stage.CODE),
    rule("zai.balance", "billing", r"\[1113\]", anywhere=True),
    rule("zai.overloaded", "overloaded", r"\[1305\]", anywhere=True),
    rule("moonshot.week", "quota", r"access_terminated_error", stage=Stage.CODE, unless=r"only available for|api key"),
    rule("moonshot.overloaded", "overloaded", r"engine_overloaded(?:_error)?"),
    rule("dashscope.allocated", "quota", r"throttling\.allocationquota|<2>allocated quota exceeded", window="5h"),
    rule(
        "dashscope.free",
        "quota",
        r"<2>free allocated quota exceeded|<6>free (?:daily )?quota has been (?:reached|exhausted)",
        window="daily",
        stage=Stage.EXACT,
    ),
    rule("qwen.discontinued", "none", r"qwen oauth free tier was discontinued"),
)
