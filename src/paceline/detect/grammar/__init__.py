"""Limits as statements: what is limited, its state, its period, and what makes such words harmless.

`lexicon.py` maps words to concepts and turns a text into a string of them; `statements.py` has the forms of statements,
finds them in it, and composes their meaning. Never here: a provider's own words (`shared_rules.py`, and the folders
of agent CLIs).
"""
