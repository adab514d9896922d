"""Programs that people schedule or run by hand; the work is done in `cagp_dist`."""
