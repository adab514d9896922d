"""Job files that are damaged anywhere."""

import numpy as np

DEEP = (b"a.", b"[", b"{a=", b'"', b"'''", b"\0")


def damaged_job(good: bytes, number: int, rng: np.random.Generator) -> bytes:
    """Flip a bit, cut a piece out, double it, make it noise, exchange, repeat, or nest deeply, in turn."""
    a, b = sorted(rng.integers(len(good), size=2).tolist())
    ways = (
        lambda: good[:a] + bytes([good[a] ^ (1 << int(rng.integers(8)))]) + good[a + 1 :],
        lambda: good[:a] + good[b:],
        lambda: good[:b] + good[a:],
        lambda: good[:a] + rng.bytes(b - a) + good[b:],
        lambda: good[b:] + good[a:b] + good[:a],
        lambda: good[:a] + good[a:b] * int(rng.integers(1, 400)) + good[b:],
        lambda: good[:a] + DEEP[int(rng.integers(len(DEEP)))] * 9_000 + good[a:],
    )
    return ways[number % len(ways)]()
