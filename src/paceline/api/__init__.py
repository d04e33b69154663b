"""The HTTP API and the dashboard: everything the command line does, over HTTP. No decision is made here.

app             the ASGI application: routes, errors and middleware together, the OpenAPI document, the files of page/
routes/         the routes, one module per family of paths
schemas         the bodies of requests and responses; what people are shown comes from `paceline.views`
bodies          bodies of requests, read within bounds and decoded strictly, and of errors; names with slashes in paths
context         what routes work on: the engine or its place in a process that stands by, the settings, the background
                readers, the metrics; the switch for traces
event_stream    the tail of the store's events, and the event stream (SSE)
auth, tokens    who may send which request, and the tokens of a home and of its fleet
otel_spans      traces
server          a socket and an HTTP server on it, with its certificate
leader_proxy    passes changes on to the leader
"""
