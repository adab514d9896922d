"""Kernel parameters learned from data: the marginal likelihood, its gradient, and the fit.

- `fit` is the front door: it takes what was `observed`, chooses a likelihood and starts the search.
- Likelihoods by family: `exact`, `vecchia`, `sampled`, and the bounds of `learned`.
- The search: `bounds`, `starts`, `search`, `replay_cache`; which numbers it looks for: `numbering`.
- Its answer: `fit_result`, `uncertainty`. Which kernel data ask for: `kernel_choice`.
"""
