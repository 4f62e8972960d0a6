"""Looking at graphs and functions: exports, explanations, checks, profiles.

Nothing here changes a function or what its variables hold.
"""
