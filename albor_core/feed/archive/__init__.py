"""What a run left behind, looked up on request."""
