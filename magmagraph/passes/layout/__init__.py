"""Layout: where channels stand, and which algorithm a convolution takes."""
