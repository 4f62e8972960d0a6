"""What a program would take on many ranks: links, machines, sharing, simulation."""
