"""The intermediate representation: operation records, nodes, graphs, plans, types and extents."""
