"""What a run left behind, looked up when somebody asks."""
