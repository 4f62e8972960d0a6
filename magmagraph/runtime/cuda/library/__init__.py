"""Convolution and attention through cuDNN."""
