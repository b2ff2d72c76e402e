"""Spans as OTLP has them in JSON: ids in hexadecimal, 64-bit numbers as texts.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

from albor_core.store.spans.ids import SpanIds
from albor_core.store.spans.span import Scalar, Span, SpanEvent

_INTERNAL, _ERROR = 1, 2  # SpanKind, StatusCode
_SAMPLED = 1


def resource_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """What all spans of a run have in common, of its run.json."""
    facts = {
        "service.name": "albor",
        "service.version": _version(),
        "service.instance.id": about.get("id"),
        "host.name": about.get("host"),
        "albor.run": about.get("id"),
        "albor.run.name": about.get("name"),
        "albor.experiment": about.get("experiment"),
        "albor.kind": about.get("kind"),
    }
    return {"attributes": _attributes({k: v for k, v in facts.items() if isinstance(v, str) and v})}


def document(spans: Iterable[Span], ids: SpanIds, about: Mapping[str, Any]) -> dict[str, Any]:
    """An ExportTraceServiceRequest, which is a TracesData as well."""
    scope = {"name": "albor", "version": _version()}
    made = [_span(span, ids) for span in spans]
    return {
        "resourceSpans": [
            {"resource": resource_of(about), "scopeSpans": [{"scope": scope, "spans": made}]}
        ]
    }


def encoded(made: Mapping[str, Any]) -> bytes:
    """The bytes of a document."""
    return json.dumps(made, separators=(",", ":"), allow_nan=False).encode()


def _span(span: Span, ids: SpanIds) -> dict[str, Any]:
    return {
        "traceId": ids.trace_id,
        "spanId": span.span_id,
        **({"parentSpanId": span.parent_id} if span.parent_id else {}),
        "flags": _SAMPLED if ids.is_sampled else 0,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
        **({"events": [_event(one) for one in span.events]} if span.events else {}),
        **({"droppedEventsCount": span.dropped_events} if span.dropped_events else {}),
        **({"status": {"code": _ERROR, "message": span.error}} if span.error is not None else {}),
    }


def _event(event: SpanEvent) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.time_ns),
        "name": event.name,
        "attributes": _attributes(event.attributes),
    }


def _attributes(found: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in found.items()]


def _value(value: Scalar) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -(2**63) <= value < 2**63 else _value(float(value))
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _NOT_FINITE[str(value)]}
    return {"stringValue": value.encode("utf-8", "backslashreplace").decode()}


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _version() -> str:
    try:
        return metadata.version("albor")
    except metadata.PackageNotFoundError:
        return "0"
