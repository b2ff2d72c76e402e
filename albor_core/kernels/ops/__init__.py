"""One fused Triton operation a file, beside its reference."""
