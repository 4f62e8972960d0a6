"""Images: pooling, patches, other sizes."""
