"""The gateway beside a bare aiohttp proxy and LiteLLM, each a process of its own. `python -m benchmarks.gateway`"""
