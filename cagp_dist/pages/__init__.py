"""HTML pages that stand alone: their templates, styles and scripts, and what a browser may run of them."""
