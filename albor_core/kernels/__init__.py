"""Which backend runs each operation: parity first, then speed, measured on this device."""
