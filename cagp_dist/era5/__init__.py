"""Temperature fields from wherever they are, in one canonical form."""
