"""`kintsugi audit`: does a program that was stopped and resumed go on as the one that was not?

The program is started unchanged, with a hook of the interpreter's (../site/sitecustomize.py) that only looks: no tensor, no random
number and no order of samples is changed by it. The records that it writes are compared afterwards.

May depend on Python's standard library; hook.py and its neighbours use the torch that the program has imported, and import none.
The folder is loaded by its path, in the program's processes too, so it needs no other part of the package.
"""
