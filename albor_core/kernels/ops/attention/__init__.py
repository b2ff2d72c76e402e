"""Attention, and the rotary embedding that its queries and keys get."""
