"""Transcripts: what an agent said and did, for people. One module for each form of event stream.

`entry.py` has the values, `reader.py` turns the bytes of a run into them. The other modules each read the events of
one CLI in which the model speaks or uses a tool; events about limits, sessions and endings are read by its provider.
"""
