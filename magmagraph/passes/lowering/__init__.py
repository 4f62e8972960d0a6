"""From a graph to a plan: steps, their order, their memory, their sizes."""
