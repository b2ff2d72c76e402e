"""A checkpoint: a folder that exists whole and verified, or not at all."""
