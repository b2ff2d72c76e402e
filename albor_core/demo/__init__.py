"""The end-to-end demo: two small models on real source code, compared."""
