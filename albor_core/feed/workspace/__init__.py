"""Many runs on one screen: their curves together, their means and bands, their groups."""
