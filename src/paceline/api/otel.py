"""The switch for traces: the standard OpenTelemetry variables turn them on, and the extra `otel` must be installed.

Only this module knows that OpenTelemetry may be missing; `otel_spans.py` makes the traces.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.api.otel_spans import Traces

log = logging.getLogger("paceline.api")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INSTALL = "{variable} turns traces on, but OpenTelemetry is not installed: pip install 'paceline[otel]'"


def open_traces(environ: Mapping[str, str]) -> "Traces | None":
    """Return traces that are exported to where the variables say, or None if they are off or cannot be made."""
    variable = enabled_by(environ)
    if variable is None:
        return None
    try:
        from paceline.api import otel_spans

        return otel_spans.exported_traces(service_name=environ.get("OTEL_SERVICE_NAME") or "paceline")
    except ImportError:
        log.warning(INSTALL.format(variable=variable))
        return None


def enabled_by(environ: Mapping[str, str]) -> str | None:
    """Return the variable that turns traces on, or None if there is none or another one turns them off."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    return None if is_off else next((name for name in ENDPOINTS if environ.get(name)), None)
