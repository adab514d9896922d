"""Files of fields: found, told apart by their first bytes, and decoded in a child process."""
