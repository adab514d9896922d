"""The accessor ``dataset.cagp``, which is there whenever xarray and this package are, in either order.

Importing the package imports no xarray: where that is not loaded yet, the accessor is registered right after
it is.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

XARRAY = "xarray"


def register_accessor() -> None:
    """Register the accessor now, or when xarray is imported."""
    xarray = sys.modules.get(XARRAY)
    if xarray is not None and hasattr(xarray, "register_dataset_accessor"):
        _register(xarray)
    else:
        sys.meta_path.insert(0, _WhenImported())


def _register(xarray: ModuleType) -> None:
    """Register what opens the accessor when it is first asked for."""
    if not hasattr(xarray.Dataset, "cagp"):  # once, also where this package is reloaded
        xarray.register_dataset_accessor("cagp")(
            lambda dataset: import_module("cagp_dist.kriging.accessor").Maps(dataset)
        )


class _WhenImported:
    """Finds xarray as all others do, once, and has the accessor registered when it is loaded."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find xarray, and nothing else."""
        if name != XARRAY:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, spec)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads as another loader does, then registers the accessor."""

    def __init__(self, loader: Any, spec: ModuleSpec) -> None:
        self._loader, self._spec = loader, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Load, and register."""
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register(module)
