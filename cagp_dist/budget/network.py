"""A network between workers: its bandwidth and its latency, as people write them."""

import re
from dataclasses import dataclass

from cagp_dist.errors import ConfigurationError

BIT_UNITS = {"kb": 1e3 / 8, "Mb": 1e6 / 8, "Gb": 1e9 / 8, "kB": 1e3, "MB": 1e6, "GB": 1e9}
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Network:
    """What connects workers and scheduler."""

    bytes_per_second: float  # What one worker sends or receives at most
    latency_seconds: float  # Of one message, one way

    @classmethod
    def parsed(cls, bandwidth: str, latency: str) -> "Network":
        """Read a bandwidth per second, b for bits and B for bytes, and a latency."""
        speed = _number("bandwidth", bandwidth, BIT_UNITS, "10Gb (bits per second) or 1.25GB (bytes)")
        if speed == 0.0:
            raise ConfigurationError(f"bandwidth {bandwidth!r} is zero: nothing would ever arrive; say 10Gb.")
        return cls(speed, _number("latency", latency, TIME_UNITS, "50us or 1ms"))


def _number(name: str, text: str, units: dict[str, float], example: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)", text.strip())
    if found is None or found[2] not in units:
        raise ConfigurationError(
            f"{name} {text!r} is not a number with a unit; expected one of {', '.join(units)}, such as "
            f"{example}."
        )
    return float(found[1]) * units[found[2]]
