"""This machine: `albor doctor`, `gpu`, `kernels`, `db`."""
