"""The routes, one module per family of paths.

overview      /healthz, /v1/status, /v1/overview, /v1/pool, /v1/sessions, /v1/accounts, /v1/windows, and events:
              /v1/events, /v1/timeline, /metrics
concurrency   /concurrency/...
campaigns     /v1/campaigns, /v1/pause, /v1/resume
units         /v1/units
slots         /v1/slots, /v1/signals, /v1/scopes
hosts         /v1/hosts
gateway       /v1/gateway, /v1/keys
"""
