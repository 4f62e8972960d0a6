"""Jobs: ranks are started, watched, and ended together."""
