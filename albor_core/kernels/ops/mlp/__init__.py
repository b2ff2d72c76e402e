"""The SwiGLU MLP: its activation, its products in one kernel each, its fp8."""
