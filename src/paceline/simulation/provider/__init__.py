"""A fake LLM provider: a real HTTP server on loopback with scripted limits.

    fake              `FakeProvider`: starts and stops the server, and what tests read from it
    scenario          what it is like, as values
    server            HTTP, the script of the next answers, and the headers of an answer
    capacity          whether an account may have one more request
    errors            every known refusal, by name
    journal           what was asked
    protocol_module   what is common to the protocols
    anthropic, openai_chat, openai_responses, gemini   one protocol each: formats bytes, decides nothing

`paceline.testing.provider` is its public path.
"""
