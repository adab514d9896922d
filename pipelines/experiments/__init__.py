"""Experiments behind the figures in the documentation; each prints the table it is quoted from."""
