"""Twenty API calls with a limit that is too high. The limiter learns from the refusals, and each call is repeated.

python examples/anthropic_calls.py            # against a fake provider on this machine

Replace the fake base URL and key with your own to call a real API.
"""

import asyncio
import time

import httpx

from paceline import Limiter
from paceline.detect import Observation, detect
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

SCOPE = "anthropic/work-key/opus-4-6"


async def ask(limiter: Limiter, client: httpx.AsyncClient, prompt: str) -> str:
    body = {"model": "claude-opus-4-6", "max_tokens": 64, "messages": [{"role": "user", "content": prompt}]}
    while True:
        async with limiter.slot(SCOPE) as slot:
            answer = await client.post("/v1/messages", json=body)
            for signal in detect(
                Observation(
                    provider="anthropic-api",
                    channel="http",
                    text=answer.content,
                    status=answer.status_code,
                    headers=dict(answer.headers),
                    seen_at=time.time(),
                )
            ):
                slot.report(signal)
            if answer.is_success:
                return str(answer.json()["content"][0]["text"])


async def main() -> None:
    async with FakeProvider(Scenario(concurrency=4, lag=0.1, latency=0.05)) as provider:
        provider.script("529_retry_after", retry_after=1.0)
        headers = {"x-api-key": "not-a-key", "anthropic-version": "2023-06-01"}
        async with httpx.AsyncClient(base_url=provider.url, headers=headers, trust_env=False) as client:
            limiter = Limiter(limits={SCOPE: 6}, cooldown=0.1)
            answers = await asyncio.gather(*(ask(limiter, client, f"task {number}") for number in range(20)))
            await limiter.aclose()
        print(f"{len(answers)} answers, at most {provider.peak_concurrency} at once, {provider.rate_limited} times 429")


if __name__ == "__main__":
    asyncio.run(main())
