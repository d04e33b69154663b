"""The commands by topic. A start of `paceline` imports one of these modules.

`plans.py`: add, preview, forecast, demo. `run.py`: run, and what a person sees meanwhile.
`control.py`: what a person changes, campaigns and capacity alike.
`status.py`: status, list, limits, events, why, top.
`units.py`: units, show, apply, results, summary. `logs.py`: logs, diff.
`home.py`: up, token, gc, export, import, gateway, keys, hosts, worker.
`exec.py`: any command inside a slot.
`doctor.py`: what is wrong with this machine. `detection.py`: detect, report.
"""
