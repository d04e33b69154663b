"""The network between a CLI and its provider: what programs print when nobody answered.

Here: names lookup, refused and lost connections, certificates and time-outs, in the words of the HTTP clients that
agent CLIs are built on. Never here: an answer of a proxy (502, 503, 504), which is an overload.
"""

import re

from paceline.detect.provider import Provider
from paceline.detect.rules import Rule, rule

# A status means that somebody answered. The other words name what is not the provider: servers of tools, updates,
# reports of errors and of use.
_NOT_THE_PROVIDER = (
    r"\b(?:status(?: code)?|http(?:/[\d.]{1,3})?|api error|error|code)[ :=]{1,3}\(?[45]\d\d\b"
    r"|\b5\d\d (?:bad|gateway|service)|\b50[0234]\b"
    r"|bad gateway|gateway time-?out|upstream|decoding response body|reading the server response"
    r"|\bmcp\b|\bhooks?\b|\blsp\b|telemetry|statsig|sentry|otlp|opentelemetry|exporter|metrics|analytics"
    r"|auto-?update|updater?|check(?:ing)? for updates|npm registry|marketplace|plugins?|extensions?\b"
)
_CONNECT = r"(?:(?:re)?connect(?:ion|ing)?|reach|contact)"

RULES: tuple[Rule, ...] = (
    rule(
        "network.name",
        "unreachable",
        r"<12>(?:getaddrinfo|enotfound|eai_again|eai_nodata|err_name_not_resolved)",
        r"<12>could ?n[o']t resolve (?:host|proxy)|<8>unable to resolve host|<8>name resolution failed",
        r"<12>(?:temporary failure in name resolution|name or service not known|nodename nor servname provided)",
        r"<12>(?:no such host|failed to (?:lookup address|resolve )|dns (?:error|lookup failed)|no address associated)",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.refused",
        "unreachable",
        r"<12>(?:econnrefused|ehostunreach|ehostdown|enetunreach|enetdown|connectionrefused|failedtoopensocket)",
        r"<12>connection (?:was )?refused|<12>no connection could be made",
        r"<8>not connected to the internet|<4>no internet connection",
        r"<12>(?:network|host|no route to host)(?: is)? (?:unreachable|down)|no route to host",
        rf"<8>(?:unable to|failed to|could ?n[o']t|cannot|can't) {_CONNECT}(?: to)?"
        r" (?:the )?(?:\S{1,40} )?(?:api|servers?|services?|provider|endpoint|host|url|internet|websocket)",
        r"unable to connect[.:] is the computer able to access",
        r"<8>all connection attempts failed|<8>failed to establish a new connection|<8>cannot connect to host",
        r"<12>err_(?:internet_disconnected|network|connection_\w{4,20}|(?:proxy|tunnel)_connection_failed)",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.lost",
        "unreachable",
        r"<12>(?:econnreset|econnaborted|epipe|und_err_socket)",
        r"<12>connection (?:was )?(?:reset|aborted)(?: by peer)?|<8>broken pipe",
        r"<8>socket hang up|<8>socket connection was closed unexpectedly|<8>other side closed",
        r"<8>server disconnected(?: without sending a response)?|<8>empty reply from server",
        r"<8>(?:remote end |connection )closed (?:connection )?(?:without response|before (?:message|headers))",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.certificate",
        "unreachable",
        r"<12>self[- ]signed certificate|<12>unable to (?:get local issuer certificate|verify the first certificate)",
        r"<12>certificate (?:verify failed|has expired|signed by unknown authority|verification failed|problem)",
        r"<12>(?:ssl|tls)(?: certificate)? (?:handshake|connect|error|verification|certificate)",
        r"<12>(?:cert_has_expired|unable_to_\w{4,40}|\w{0,20}self_signed_cert\w{0,20}|err_tls_\w{4,40})",
        r"<12>certificate_verify_failed",
        r"<12>before secure tls connection was established|<12>wrong version number",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.time-out",
        "unreachable",
        r"<12>(?:etimedout|esockettimedout|und_err_connect_timeout|und_err_headers_timeout)",
        r"<8>(?:connect(?:ion)?|tls handshake|socket) time(?:d[- ]?|-)?out",
        r"<4>(?:request|operation) timed out",
        r"<8>dial tcp[^\n]{0,120} i/o timeout|<12>exceeded while awaiting headers",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
    rule(
        "network.no-answer",
        "unreachable",
        r"<4>connection error(?=\W|$)",
        r"<8>fetch failed|<4>failed to fetch(?!\s\w)",
        r"<12>error sending request(?: for url)?",
        r"<4>network (?:error|connection (?:failed|lost|error))",
        r"<8>(?:api)?connection(?:refused|reset|aborted)?error",
        open_end=True,
        unless=_NOT_THE_PROVIDER,
    ),
)

PROVIDER = Provider(name="network", rules=RULES)

# --- commands of which nothing is known --------------------------------------------------------

_CLIENT = re.compile(
    r"curl: \((?:5|6|7|28|35|52|55|56|58|60|77)\) "
    r"|wget: (?:unable to resolve|.{0,80}(?:connection refused|timed out))"
    r"|(?:requests|urllib3|httpx|httpcore|aiohttp|openai|anthropic|litellm|botocore)(?:\.\w{1,40}){0,3}"
    r"\.(?:\w{0,20}Connect\w{0,20}(?:Error|Timeout)|\w{0,12}(?:Timeout|SSLError)(?:Error)?|NewConnectionError"
    r"|MaxRetryError|RemoteProtocolError|ServerDisconnectedError|ReadError|NameResolutionError)\b"
    r"|ssl\.SSL\w{0,30}Error: "
    r"|urllib\.error\.URLError: <urlopen error (?!unknown url)"
    r"|(?:Error: )?(?:getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|connect (?:ECONNREFUSED|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)) "
    r"|TypeError: fetch failed"
    r"|.{0,200}\bdial tcp\b.{0,200}(?:no such host|connection refused|i/o timeout|network is unreachable)"
)
_LOCAL = re.compile(r"\blocalhost\b|\b127\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|\[?::1\b|\b0\.0\.0\.0\b|\.local\b", re.I)


def is_client_error(line: str) -> bool:
    """Return whether the last line of a failed command is a known HTTP client's report that nobody answered.

    A server on this machine is the command's own concern: it fails or works with the command.
    """
    return bool(_CLIENT.match(line)) and not _LOCAL.search(line)
