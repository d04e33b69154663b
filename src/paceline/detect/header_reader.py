"""What the headers of an answer state about limits.

Here: the order in which headers are trusted: a provider's own decision, then a wait, then an empty bucket.
Never here: a provider's header names, which are in `providers/`, and the forms of values (`parsing/headers.py`).
"""

import re
from collections.abc import Iterable

import msgspec

from paceline.core.signals import Budget
from paceline.detect.parsing.headers import Bucket, Headers, normalize_headers, read_buckets, retry_after
from paceline.detect.parsing.reset_times import Reset
from paceline.detect.provider import HeaderReading
from paceline.detect.provider_set import ProviderSet

_REASON_NAME = re.compile(r"limit|reason|error|credit|billing|quota")
_REASON = re.compile(r"[A-Za-z]{2,40}(?:[_-][A-Za-z]{2,40}){1,8}")
NO_HEADERS = HeaderReading()


def find_headers(pairs: Iterable[tuple[str, str]], providers: ProviderSet) -> Headers:
    """Return the headers in a body: proxies and CLIs put whole responses into their errors."""
    return normalize_headers({key: value for key, value in pairs if providers.header_name.fullmatch(key)})


def read_headers(headers: Headers, providers: ProviderSet, *, status: int | None, seen_at: float) -> HeaderReading:
    """Return the meaning of the headers of an answer with this status."""
    if not headers:
        return NO_HEADERS
    buckets = read_buckets(headers, providers.buckets, seen_at)
    budgets = (
        *_bucket_budgets(buckets),
        *(budget for rules in providers.headers if rules.budgets for budget in rules.budgets(headers, seen_at)),
    )
    is_refused = status is None or status >= 400
    if not is_refused:
        return HeaderReading(budgets=budgets)
    for rules in providers.headers:
        if rules.decide and (decided := rules.decide(headers, status, seen_at)) is not None:
            return msgspec.structs.replace(decided, budgets=budgets)
    if (reset := retry_after(headers, seen_at) or _empty_bucket(buckets)) is not None:
        return HeaderReading(reset=reset, budgets=budgets, rules=(reset.rule,))
    return HeaderReading(budgets=budgets)


def named_reasons(headers: Headers) -> str:
    """Return the headers that name a reason, as lines of text. Whether usage beyond the plan is on refuses nothing."""
    return "\n".join(
        f"{name}: {value}"
        for name, value in headers.items()
        if _REASON_NAME.search(name) and "overage" not in name and _REASON.fullmatch(value)
    )


def _empty_bucket(buckets: dict[str, Bucket]) -> Reset | None:
    spent = [reset for left, reset, _ in buckets.values() if left == 0 and reset is not None]
    if spent:
        return Reset(at=max(spent), confidence=0.9, source="header", rule="header.exhausted-bucket")
    silent = [reset for left, reset, _ in buckets.values() if left is None and reset is not None]
    if silent and len(silent) == len(buckets):
        return Reset(at=max(silent), confidence=0.6, source="header", rule="header.bucket-reset")
    return None


def _bucket_budgets(buckets: dict[str, Bucket]) -> list[Budget]:
    """Return the budget of requests and tokens. Of several buckets of one sort the emptiest counts."""
    told = [(name, bucket) for name, bucket in buckets.items() if bucket.left is not None]
    requests = _emptiest([bucket for name, bucket in told if "token" not in name])
    tokens = _emptiest([bucket for name, bucket in told if "token" in name])
    if not told:
        return []
    return [
        Budget(
            requests_remaining=_whole(requests.left),
            requests_reset_at=requests.reset,
            requests_limit=_whole(requests.limit),
            tokens_remaining=_whole(tokens.left),
            tokens_reset_at=tokens.reset,
            tokens_limit=_whole(tokens.limit),
            source="header",
        )
    ]


def _emptiest(buckets: list[Bucket]) -> Bucket:
    return min(buckets, key=lambda bucket: bucket.left or 0.0, default=Bucket())


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
