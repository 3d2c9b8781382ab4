#: missing_module -> exception:ModuleNotFoundError
import a_module_that_is_nowhere

#: every_module -> ok exception timeout memory
import sys
for name in sorted(sys.stdlib_module_names):
    try:
        __import__(name)
    except BaseException:
        pass

#: every_builtin_module -> ok exception timeout
import sys
for name in sys.builtin_module_names:
    try:
        __import__(name)
    except BaseException:
        pass

#: import_in_a_loop -> timeout exception
import sys
while True:
    sys.modules.pop("json", None)
    import json

#: import_of_itself -> ok exception
import __main__
__main__.__import__("__main__").x = 1

#: import_of_main_cleared -> ok exception
#: then print(6 * 7)
#: prints 42
import __main__
__main__.__dict__.clear()

#: hidden_host_module -> exception ok
#: then x = 1
#: ends ok exception
import sys
for name in list(sys.modules):
    if "host" in name or "forage" in name or "tool" in name:
        module = sys.modules[name]
        for attribute in list(vars(module)):
            setattr(module, attribute, None)

#: modules_cleared -> ok exception
#: then print(6 * 7)
#: prints 42
import sys
sys.modules.clear()

#: modules_poisoned -> ok exception
#: then print(6 * 7)
#: prints 42
import sys
for name in list(sys.modules):
    if name not in ("sys", "builtins"):
        sys.modules[name] = None

#: modules_replaced -> ok exception
#: then print(6 * 7)
#: prints 42
import sys
sys.modules = 7

#: own_import_function -> ok exception
#: then print(6 * 7)
#: prints 42
import builtins
def refuse(*a, **k):
    raise RuntimeError("no import")
builtins.__import__ = refuse

#: endless_meta_path -> timeout
import sys
class Finder:
    def find_spec(self, *_):
        while True:
            pass
sys.meta_path.insert(0, Finder())
import another_module

#: meta_path_left_behind -> ok
#: then print(6 * 7, search_pages("bridge")[0]["id"])
#: prints 42 page-1
import sys
class Finder:
    def find_spec(self, *_):
        while True:
            pass
sys.meta_path.insert(0, Finder())

#: path_hooks -> exception timeout
import sys
def hook(path):
    while True:
        pass
sys.path_hooks.insert(0, hook)
sys.path.insert(0, "somewhere")
sys.path_importer_cache.clear()
import another_module

#: import_star_of_all -> ok exception
from builtins import *
from os import *
from sys import *

#: import_by_odd_names -> exception
__import__("\x00")

#: import_by_no_string -> exception:TypeError
__import__(7)

#: long_name -> exception
__import__("a." * 20000 + "a")

#: antigravity -> ok exception
import antigravity
