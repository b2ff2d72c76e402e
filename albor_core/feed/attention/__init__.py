"""What needs a person now: one list, derived from the runs, their alerts and the machine."""
