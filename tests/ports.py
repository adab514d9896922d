"""Ports of this machine that a test may give to a server."""

import random
import socket
from contextlib import suppress

PORTS = range(20_000, 32_000)
"""Below those that systems give to whoever asks for any, so that none is given away before it is used."""


def closed_port() -> int:
    """A port of this machine where nobody listens, nor will but for who was told of it."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
