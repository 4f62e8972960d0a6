"""What several ranks do together."""
