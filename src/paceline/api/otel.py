"""Whether traces are wanted: the standard OpenTelemetry variables decide, and the extra `otel` has to be there.

Only this module knows that OpenTelemetry may be missing; `spans.py` makes the traces.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.api.otel_spans import Traces

log = logging.getLogger("paceline.api")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INSTALL = "traces are asked for by {variable}, but OpenTelemetry is not installed: pip install 'paceline[otel]'"


def open_traces(environ: Mapping[str, str]) -> "Traces | None":
    """Traces that go where the variables say; None where nobody asked, or where they cannot be made."""
    variable = asked_by(environ)
    if variable is None:
        return None
    try:
        from paceline.api import otel_spans as spans

        return spans.exported(service_name=environ.get("OTEL_SERVICE_NAME") or "paceline")
    except ImportError:
        log.warning(INSTALL.format(variable=variable))
        return None


def asked_by(environ: Mapping[str, str]) -> str | None:
    """The variable that asks for traces, unless another one turns them off."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return None if is_off else next((name for name in ENDPOINTS if environ.get(name)), None)
