"""Where the time of steps goes, read from profiler traces: phases, kernels, idle, roofline."""
