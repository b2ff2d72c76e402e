"""A run's program: how it is started and signalled, its code, its scheduler's job."""
