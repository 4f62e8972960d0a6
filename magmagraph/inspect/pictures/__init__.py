"""Pictures of graphs: their content, layout and drawing."""
