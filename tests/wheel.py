"""A wheel as people get it: installed into an empty environment, with an empty home folder, and tried there.

    python -m tests.wheel dist/cagp_dist-0.1.0-py3-none-any.whl [--demo]

Functions are not compiled, which takes longer than what is tried, but for the demo.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
MOST_BYTES = 800_000_000
"""Of site-packages after a plain install: a quarter is Numba, half SciPy, NumPy, pandas
and Matplotlib, with their bytecode."""

KRIGE = """
import numpy as np
import pandas as pd
import cagp_dist as cagp

rng = np.random.default_rng(0)
latitude, longitude = rng.uniform(40, 60, 40), rng.uniform(0, 20, 40)
table = pd.DataFrame({"latitude": latitude, "longitude": longitude, "temperature": 300 - 0.5 * latitude})
found = cagp.krige(table, to={"region": [55, 5, 45, 15], "resolution": 5.0}, value="temperature")
error = abs(found["mean"] - (300 - 0.5 * found["latitude"])).max()
assert error < 1.0, error
assert found["std"].min() > 0.0
"""

JOB = """
[observations]
source = "sample"

[design]
train = { kind = "random", count = 300, seed = 0 }
test = { kind = "random", count = 50, seed = 1 }
map = { kind = "grid", resolution_degrees = 20.0 }

[prior]
kernel = "matern32"
lengthscale = 0.3
variance = 30.0
noise_variance = 1.0

[output]
root = "out"
"""


def tried(wheel: Path, folder: Path, *, demo: bool = False) -> tuple[int, dict[str, float]]:
    """Install a wheel in a folder and use it; give its bytes there, and seconds of each step."""
    bin_folder = folder / "environment" / "bin"
    home, place = folder / "home", folder / "elsewhere"
    home.mkdir()
    place.mkdir()
    (place / "job.toml").write_text(JOB)
    python, cagp = bin_folder / "python", bin_folder / "cagp"
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--constraint", LOCK)
    steps: dict[str, Sequence[str | Path]] = {
        "venv": (sys.executable, "-m", "venv", folder / "environment"),
        "pip install": (python, *install, wheel),
        "pip check": (python, "-m", "pip", "check"),
        "cagp --version": (cagp, "--version"),
        "cagp --help": (cagp, "--help"),
        "krige": (python, "-c", KRIGE),
        "job": (cagp, "run", "job.toml"),
        "verify": (cagp, "verify", "out"),
        "view": (cagp, "view", "out", "--export", "page"),
    }
    if demo:
        steps["cagp demo"] = (cagp, "demo", "--output", "demo")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    plain |= {"HOME": str(home), "MPLBACKEND": "Agg"}
    pip_cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
    seconds = {}
    for name, command in steps.items():
        own = {"PIP_CACHE_DIR": pip_cache} if name == "pip install" else {}
        own |= {} if name == "cagp demo" else {"NUMBA_DISABLE_JIT": "1"}
        begun = time.monotonic()
        _run(name, command, place, plain | own)
        seconds[name] = time.monotonic() - begun
    (packages,) = (folder / "environment" / "lib").glob("python*/site-packages")
    return sum(path.lstat().st_size for path in packages.rglob("*")), seconds


def _run(name: str, command: Sequence[str | Path], place: Path, environment: Mapping[str, str]) -> None:
    """Run one step; end with what it said if it fails."""
    run = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{name} failed with exit code {run.returncode}:\n{run.stdout}{run.stderr}")


def main() -> None:
    """Try the wheel that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--demo", action="store_true", help="run cagp demo too, compiled: a minute")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size, seconds = tried(settings.wheel.absolute(), Path(folder), demo=settings.demo)
    for name, taken in seconds.items():
        print(f"{name:<16}{taken:6.1f} s")
    print(f"{'site-packages':<16}{size / 1e6:6.0f} MB")
    if size > MOST_BYTES:
        raise SystemExit(f"expected {MOST_BYTES / 1e6:.0f} MB at most")


if __name__ == "__main__":
    main()
