"""Array types that the whole package shares."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Any array of float64."""

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]
