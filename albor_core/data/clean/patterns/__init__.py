"""Secrets and personal data in text: found by shape and check digits, masked in place."""
