"""Distribution: one program, made again on what each of many ranks has."""
