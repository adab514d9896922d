"""Types of arrays, as the package writes them."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Times = NDArray[np.datetime64]
