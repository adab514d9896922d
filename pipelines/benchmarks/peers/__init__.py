"""Us and others on the same data with the same prior: ``make peers``.

Each peer is a script in ``adapters``, run in an environment of its own that the suite makes; what it
answers on a small problem is held against a dense formula before its times are believed.
"""
