"""Vecchia's likelihood of many scattered points: `vecchia_likelihood`, on `conditionals` (math 9)."""
