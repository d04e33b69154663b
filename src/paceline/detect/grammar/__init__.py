"""Limits as statements: what is limited, its state, its period, and what makes such words harmless.

`lexicon.py` maps words to concepts, `encoder.py` turns a text into a string of concepts, `forms.py` finds statements
in it, and `statements.py` composes their meaning. Never here: a provider's own words (`services.py`, and the folders
of agent CLIs).
"""
