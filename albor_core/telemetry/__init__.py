"""What the machine does: GPUs by NVML, host, processes."""
