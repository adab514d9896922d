"""Types of arrays, as the package writes them."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Times = NDArray[np.datetime64]
Names: TypeAlias = NDArray[np.object_]  # texts; rows of one place share theirs
Marks: TypeAlias = float | str | Sequence[float | str] | None
# what stands for a missing value: one mark, or all of them; texts in cells of a table
