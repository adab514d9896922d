"""Solvers that leave no computational uncertainty: `exact_solvers` has a dense factor and whole rings."""
