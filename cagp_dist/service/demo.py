"""The job of `cagp demo`, which is also the example of the documentation and of `cagp run --help`."""

import json
from pathlib import Path

from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.job import Job

DEMO_JOB = """\
[observations]
source = "sample"
variable = "t2m"        # a name in the source; published names and units follow it
times = ["2017-04-27T12:00"]
# quality = "flag"      # leaves out values that all others contradict, and lists them

[design]
train = {{ kind = "random", count = 10000, seed = 0 }}
test  = {{ kind = "random", count = 2000, seed = 1 }}
calibration = {{ kind = "random", count = 2000, seed = 0 }}   # whose errors correct the error bars
map   = {{ kind = "grid", resolution_degrees = 5.0 }}

[prior]
kernel = "matern32"
mean = "quadratic-latitude"
lengthscale = 0.05      # chord on the unit sphere
variance = 22.0         # K^2
noise_variance = 0.5    # K^2; without these three lines they are fitted first, see `cagp fit`
# transform = "auto"    # of values that are not normal, such as rain: beside fitted parameters
# outliers = "robust"   # a few wrong values count less: beside fitted parameters, without calibration

[solver]
name = "neighbours"
neighbours = 64         # nearest observations of each point

[output]
root = {root}
"""


def demo_job_text(root: Path | str) -> str:
    """Write the job file of the demonstration for an output folder."""
    return DEMO_JOB.format(root=json.dumps(str(root)))


def demo_job(root: Path | str) -> Job:
    """Build the job of the demonstration: the built-in field, 10,000 points observed, 2,000 held out."""
    return parse_job(demo_job_text(root), name="the demonstration")
