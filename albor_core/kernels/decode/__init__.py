"""Attention of one new token of each sequence against its cache."""
