"""Public tables of geostatistics, mapped by this package and by others that pip installs: ``make proof``."""
