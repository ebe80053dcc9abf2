"""MorphSeek in other programs, and theirs in it: a module each, under an extra of its own.

They use the public names of morphseek, and nothing of morphseek needs them but an atlas's name
in the place of a path.
"""
