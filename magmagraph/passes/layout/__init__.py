"""Layout: choose the position of the channels axis and the algorithm of each convolution."""
