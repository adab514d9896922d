"""Kriging from the observations near each target, with exact error distributions (math 20): `neighbours`.

How neighbourhoods are found and solved is in `cagp_dist.gram.neighbourhoods`.
"""
