"""What a value is and how it reads: metrics, directions, lenient JSON, text without secrets."""
