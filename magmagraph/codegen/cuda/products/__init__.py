"""Generated matrix products, and the regions that are computed on their tiles."""
