"""Is the run well: its GPUs, its loss, its gradients, its schedule, its time left; pure."""
