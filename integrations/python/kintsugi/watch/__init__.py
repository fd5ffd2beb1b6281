"""`kintsugi watch`: the part of it that is in each rank of a program that is not changed. It marks what the rank asks of its process groups; the
command compares the marks of all ranks once somebody waits for too long (tools/watch).

May depend on Python's standard library; the torch that the program has imported is used, and none is imported. The folder is loaded by its path, so it
needs no other part of the package.
"""
