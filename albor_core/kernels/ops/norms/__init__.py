"""Norms: RMSNorm, with the residual before it, of queries and keys."""
