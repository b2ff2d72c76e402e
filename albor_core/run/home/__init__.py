"""The home of a user (ALBOR_HOME): its folders, the runs that it knows, where they lie, new ones."""
