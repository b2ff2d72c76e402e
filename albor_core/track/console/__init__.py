"""What a tracked program prints, also into its runs' logs."""
