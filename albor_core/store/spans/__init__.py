"""A run as OpenTelemetry spans: folded from its files, written as OTLP, sent to a collector."""
