"""The model of a result, as its attributes say it."""

import ast
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from cagp_dist import kernels, space_time, time_factors
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Kernel
from cagp_dist.kriging.axes import Asked
from cagp_dist.kriging.map_dataset import noise_text
from cagp_dist.means import MEANS

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging
    from cagp_dist.kriging.observed_objects import Source

_HOMES = (kernels, space_time, time_factors)


def model_of(attributes: Mapping[Hashable, Any], observations: "Source", asked: Asked) -> "Kriging":
    """Give a `Kriging` of observations with the numbers of a result, of which nothing is fitted again."""
    from cagp_dist.kriging.kriging_model import Kriging

    instead = "Expected the fitted Kriging instead of the observations."
    if not {"kernel", "prior_mean", "noise_std"} <= set(attributes):
        raise ArgumentError(f"the result does not say its kernel, mean and noise. {instead}")
    kernel = _kernel(ast.parse(str(attributes["kernel"]), mode="eval").body)
    mean, noise = attributes["prior_mean"], attributes["noise_std"]
    if kernel is None or (isinstance(mean, str) and mean not in MEANS):
        what = f"kernel is {attributes['kernel']}" if kernel is None else f"mean is {mean}"
        raise ArgumentError(f"the {what}, which cannot be taken from the attributes of the result. {instead}")
    model = Kriging(
        kernel=kernel,
        mean=mean,
        noise_std=None if isinstance(noise, str) else float(noise),
        at="observed" if kernel.parts[0].of_space_and_time else None,
        hyperparameters="plug-in",
        x=asked.x,
        y=asked.y,
        crs=asked.crs,
        progress=False,
    ).fit(observations)
    if isinstance(noise, str) and noise != noise_text(model._fitted()[1]):
        raise ArgumentError(f"the noise was {noise}, and these observations do not say it. {instead}")
    return model


def _kernel(node: ast.AST) -> Any:
    """Read a kernel as it is written, None where it is none of this package."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_kernel(each) for each in node.elts)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    family = next((getattr(home, node.func.id) for home in _HOMES if hasattr(home, node.func.id)), None)
    if not (isinstance(family, type) and issubclass(family, Kernel)):
        return None
    return family(
        *(_kernel(each) for each in node.args),
        **{str(each.arg): _kernel(each.value) for each in node.keywords},
    )
