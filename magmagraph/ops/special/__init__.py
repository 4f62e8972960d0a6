"""Special functions, as `mg.special` has them."""
