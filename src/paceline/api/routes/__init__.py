"""The routes, one module per family of paths.

overview      /healthz, /v1/status, /v1/overview, /v1/pool, /v1/sessions, /v1/accounts, /v1/windows
concurrency   /concurrency/...
campaigns     /v1/campaigns, /v1/pause, /v1/resume
results       /v1/campaigns/{id}/results, /v1/campaigns/{id}/summary
units         /v1/units
slots         /v1/slots, /v1/signals, /v1/scopes
events        /v1/events, /v1/timeline, /metrics
"""
