"""`paceline demo`: the library governs a burst of simulated agents against a fake provider, and shows it live.

`play.py` is what happens, `ledger.py` what is known of it, `view.py` and `summary.py` how it looks. Nothing
here decides who may start: that is the limiter's, as in any other program.
"""
