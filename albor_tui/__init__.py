"""The cockpit: what the terminal shows of runs, and what keys do to them."""
