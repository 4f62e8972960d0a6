"""Pictures of graphs: what they show, where it lies, how it is drawn."""
