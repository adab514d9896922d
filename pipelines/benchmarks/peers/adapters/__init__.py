"""One script for each peer, run under the interpreter of that peer's environment."""
