"""Help with calls that fail: wrong arguments and keywords, and names of other libraries."""
