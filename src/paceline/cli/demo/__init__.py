"""`paceline demo`: the engine runs two campaigns of real processes against a fake provider, and shows it live.

`stage.py` is what happens, `agent.py` the program that is run, `ledger.py` what is known of it, `view.py`,
`summary.py` and `page.py` (the dashboard) how it looks. Nothing here decides who may start: that is the engine's, as in
any other home.
"""
