"""What networks are made of: activations, attention, embeddings, the loss of alignments."""
