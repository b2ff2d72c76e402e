"""The home of a user (ALBOR_HOME): its folders, the runs that it knows and where they lie."""
