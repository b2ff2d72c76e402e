"""What a run says while it trains: journal, state, console, telemetry, alerts."""
