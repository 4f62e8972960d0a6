"""Elements by their positions: looked up, written, sorted, found."""
