"""Alert rules: a small grammar, read without eval, and a fold over values and machine figures."""
