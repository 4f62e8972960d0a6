"""Files: one way to write them, and one way to read those that are not trusted.

================  ==========================================================================
`writing`         a file is replaced whole, or stays as it was
`reading`         bytes of a file, with a limit for what is packed, and errors that name it
`arrays`          the headers of arrays: extents and dtypes, checked against the bytes
`schema`          what a value of JSON may hold, written once for each format
`folders`         temporary folders, which a later process removes if their owner was killed
`trust`           files and folders that no other user of the machine could have written
================  ==========================================================================
"""
