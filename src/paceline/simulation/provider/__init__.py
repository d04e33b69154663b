"""A fake LLM provider: a real HTTP server on loopback with scripted limits.

    fake              `FakeProvider`: HTTP, the script of the next answers, the headers of an answer, what was asked
    scenario          what it is like, as values
    capacity          whether an account may have one more request
    errors            every known refusal, by name
    protocol_module   what is common to the protocols
    anthropic, openai_chat, openai_responses, gemini   one protocol each: formats bytes, decides nothing

`paceline.testing.provider` is its public path.
"""
