"""The decoder: plain, fused, in fp8; parameters in flat buffers."""
