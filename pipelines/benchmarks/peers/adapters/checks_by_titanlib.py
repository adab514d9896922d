"""titanlib's spatial consistency test on one time of stations.

Called as ``python checks_by_titanlib.py PROBLEM.npz ANSWER.npz``; the problem has ``latitude``,
``longitude``, ``elevation`` (all zero: no vertical profile is fitted), ``values`` and ``thresholds``. Flags
are (K, n), for each threshold of the squared error in units of its standard deviation.
"""

import sys
import time

import numpy as np
import titanlib

SETTINGS = {
    "num_min": 5,
    "num_max": 100,
    "inner_radius": 50_000.0,
    "outer_radius": 150_000.0,
    "num_iterations": 20,
    "num_min_prof": 20,
    "min_elev_diff": 200.0,
    "min_horizontal_scale": 10_000.0,
    "vertical_scale": 200.0,
}
"""Distances in m; those of titanlib's own examples."""

NOISE_RATIO = 0.5
"""Variance of the error of an observation over that of the field, its examples' value."""

FOR_NO_PROFILE = 1_000_000


def main() -> None:
    """Check at each threshold, and write flags with what they took."""
    problem, answer = sys.argv[1:]
    with np.load(problem) as stored:
        given = {name: stored[name] for name in stored.files}
    count = given["values"].size
    settings = dict(SETTINGS)
    if not given["elevation"].any():
        settings["num_min_prof"] = FOR_NO_PROFILE
    worked = time.process_time()
    points = titanlib.Points(given["latitude"], given["longitude"], given["elevation"])
    flags = []
    for threshold in given["thresholds"]:
        limit = np.full(count, threshold)
        found, *_ = titanlib.sct(
            points, given["values"], *settings.values(), limit, limit, np.full(count, NOISE_RATIO)
        )
        flags.append(np.asarray(found) > 0)
    np.savez(answer, flags=np.array(flags), processor_seconds=time.process_time() - worked)


if __name__ == "__main__":
    main()
