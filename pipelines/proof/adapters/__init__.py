"""Scripts that run under the interpreter of a peer's own environment: they import no other part of this."""
