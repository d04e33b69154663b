"""The HTTP API and the dashboard: everything the command line does, over HTTP. No decision is made here.

app             the ASGI application: routes, errors and middleware put together, and the files of page/
routes/         the routes, one module per family of paths
schemas         the bodies of requests and responses; what people are shown comes from `paceline.views`
context         what routes work on: the engine, its settings and the background readers
background      readers of the engine's events that run all the time; the switch for traces
event_stream    the tail of the store's events, and the event stream (SSE)
auth, tokens    who may send which request, and the tokens of a home and of its fleet
errors          errors as responses
request_body    bodies, read within bounds and decoded strictly, and names with slashes in paths
openapi         the OpenAPI document
prometheus      metrics
otel_spans      traces
server          a socket and an HTTP server on it, with its certificate
standby         an engine's place in a process that stands by; leader_proxy passes changes on
remote_units    what units on other hosts have printed and changed
"""
