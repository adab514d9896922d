"""Error bars corrected by errors at points that the solve did not use (math 19).

`methods` is the registry: a method is one module and one line there.

- `local_scale`: a scale that follows the errors near by (`near_by`, `scale_regression`).
- `quantile_curve`: one curve for all points.
- `sharp`: lengthscales of their own for every quantile (`sharp_search`, `stretched`).
- What they share: `order_statistics`, `fewest`, `corrected`.
"""
