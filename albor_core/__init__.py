"""Albor without a screen: everything that does; `albor_tui` shows."""
