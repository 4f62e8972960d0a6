"""Graphs made of graphs: mapped, replaced, named, looped and branched."""
