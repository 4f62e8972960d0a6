"""Arrays made, cut, joined and put into other shapes."""
