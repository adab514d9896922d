"""``python -m cagp_dist`` is the command ``cagp``."""

from cagp_dist.cli import main

if __name__ == "__main__":
    main()
