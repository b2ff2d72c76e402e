"""What the cockpit and `albor monitor` show of runs, as frozen values, followed live."""
