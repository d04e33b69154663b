"""The HTTP API and the dashboard: everything the command line does, over HTTP. No decision is made here.

app             the ASGI application: routes, errors and middleware put together
routes/         the routes, one module per family of paths
schemas         the bodies of requests and responses; what people are shown comes from `paceline.views`
context         what routes work on: the engine, its settings and the background readers
background      readers of the engine's events that run all the time
events/         the tail of the store's events, and the event stream (SSE)
auth, tokens    who may send which request
errors          errors as responses
request_body    bodies, read within bounds and decoded strictly
url_paths       names with slashes in paths
slot_shortcut   the two most frequent calls, past the framework
openapi         the OpenAPI document
static_files    the files of the dashboard, which are in page/
prometheus      metrics
otel            the switch for traces; otel_spans makes them
server          a socket and an HTTP server on it
"""
