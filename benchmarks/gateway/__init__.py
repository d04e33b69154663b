"""The gateway compared with a bare aiohttp proxy and LiteLLM, each in one process. `python -m benchmarks.gateway`"""
