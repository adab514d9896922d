"""Maps: where a map is drawn, what a grid has at its pixels, and what lies below and above the colours."""
