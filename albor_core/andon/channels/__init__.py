"""Tells people about alerts: webhooks, commands, the desktop, a line on a terminal."""
