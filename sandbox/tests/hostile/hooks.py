#: trace -> ok timeout exception
import sys
def trace(*_):
    return trace
sys.settrace(trace)

#: trace_that_loops -> timeout ok exception
import sys
def trace(*_):
    while True:
        pass
sys.settrace(trace)
(lambda: 0)()

#: trace_left_behind -> ok timeout exception
#: then x = 1
#: ends ok timeout exception
import sys
def trace(*_):
    while True:
        pass
sys.settrace(trace)

#: profile -> ok timeout exception
import sys
sys.setprofile(lambda *_: None)
len("x")

#: exception_hook -> exception
#: then 1 / 0
#: ends exception:ZeroDivisionError
import sys
def hook(*_):
    print("caught")
    while True:
        pass
sys.excepthook = hook
raise KeyError("x")

#: unraisable_hook -> ok timeout exception
import sys
def hook(_):
    while True:
        pass
sys.unraisablehook = hook
class D:
    def __del__(self):
        raise ValueError
D()

#: display_hook -> ok
import sys
sys.displayhook = None
1 + 1

#: audit_hook -> ok exception timeout
import sys
def hook(*_):
    raise RuntimeError("audited")
sys.addaudithook(hook)

#: recursion_limit_of_one -> exception ok
#: then print(6 * 7)
#: ends ok exception:RecursionError
import sys
sys.setrecursionlimit(1)

#: recursion_limit_low -> ok exception
#: then print(6 * 7, search_pages("bridge")[0]["id"])
#: ends ok exception:RecursionError
import sys
sys.setrecursionlimit(10)

#: recursion_limit_negative -> exception:ValueError exception:OverflowError
import sys
sys.setrecursionlimit(-(10**30))

#: stdout_closed -> ok exception
#: then print(6 * 7)
#: ends ok exception
import sys
sys.stdout.close()

#: stdout_none -> ok exception
#: then print(6 * 7)
#: ends ok exception
import sys
sys.stdout = None

#: stdout_deleted -> ok exception
#: then x = 1
#: prints
import sys
del sys.stdout

#: stdout_that_loops -> timeout
import sys
class Out:
    def write(self, text):
        while True:
            pass
    def flush(self):
        pass
sys.stdout = Out()
print("x")

#: stdout_flush_that_loops -> ok timeout
import sys
class Out:
    def write(self, text):
        pass
    def flush(self):
        while True:
            pass
sys.stdout = Out()
print("x")

#: stdout_that_prints -> exception:RecursionError stack
import sys
class Out:
    def write(self, text):
        print(text)
    def flush(self):
        pass
sys.stdout = Out()
print("x")

#: stdout_redirected_and_back -> ok
#: then print(6 * 7)
#: prints 42
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as out:
    print("hidden")

#: stdout_detached -> ok exception
import sys
sys.stdout.detach()

#: stderr_none -> exception:ZeroDivisionError
import sys
sys.stderr = None
1 / 0

#: print_replaced -> ok
#: then print("x")
#: prints
import builtins
builtins.print = lambda *a, **k: None

#: builtins_emptied -> ok exception
#: then x = 1
#: ends ok exception
import builtins
for name in list(vars(builtins)):
    if not name.startswith("__"):
        delattr(builtins, name)

#: builtins_replaced -> ok exception
#: then x = 1
#: ends ok exception
__builtins__ = {}

#: builtins_none -> ok exception
#: then x = 1
#: ends ok exception
__builtins__ = None

#: exceptions_replaced -> ok exception
#: then 1 / 0
#: ends exception
import builtins
builtins.Exception = builtins.BaseException = builtins.ZeroDivisionError = int

#: str_replaced -> exception
#: then x = 1
#: ends ok exception
import builtins
builtins.str = builtins.repr = builtins.len = builtins.isinstance = None
raise ValueError("x")

#: traceback_module_poisoned -> exception:ZeroDivisionError
#: then 1 / 0
#: ends exception:ZeroDivisionError
import traceback, linecache
for module in (traceback, linecache):
    for name in list(vars(module)):
        if not name.startswith("__"):
            setattr(module, name, None)
1 / 0

#: exception_with_poisoned_traceback -> exception timeout
class Bad(Exception):
    @property
    def __traceback__(self):
        while True:
            pass
    @property
    def __cause__(self):
        raise ValueError
raise Bad()

#: exception_with_odd_class_name -> exception
raise type("A\nB: c\x00", (Exception,), {"__module__": 7})("x")

#: exception_with_looping_name -> exception timeout
class Meta(type):
    @property
    def __name__(cls):
        while True:
            pass
    __qualname__ = __module__ = __name__
raise Meta("E", (Exception,), {})("x")

#: exception_of_a_base_class -> exception
raise BaseException("x")

#: keyboard_interrupt -> exception:KeyboardInterrupt
raise KeyboardInterrupt

#: generator_exit -> exception:GeneratorExit
raise GeneratorExit

#: exception_cause_cycle -> exception:ValueError
one, two = ValueError(1), ValueError(2)
one.__cause__, two.__cause__ = two, one
raise one

#: exception_notes -> exception:ValueError output
error = ValueError("x")
for _ in range(100000):
    error.add_note("y" * 100)
raise error

#: exception_notes_that_are_none -> exception:ValueError
error = ValueError("x")
error.__notes__ = 7
raise error

#: exception_args_poisoned -> exception:ValueError stack
error = ValueError("x")
error.args = (error,)
raise error

#: syntax_error_by_hand -> exception:SyntaxError
raise SyntaxError("x", ("@FILE@", -5, 10**9, "text", 7, -1))

#: syntax_error_of_odd_parts -> exception
error = SyntaxError("x")
error.lineno, error.offset, error.text, error.filename, error.end_lineno = "a", [], 7, object(), {}
raise error

#: exit -> exception:SystemExit
import sys
sys.exit(3)

#: exit_of_an_odd_code -> exception:SystemExit
import sys
sys.exit([1, 2])

#: quit -> exception:SystemExit exception:NameError
quit()

#: codec_registered -> ok exception
#: then print("x".encode("utf-8"))
#: prints b'x'
import codecs
def search(name):
    while name == "odd":
        pass
codecs.register(search)

#: main_module_replaced -> ok exception
#: then print(6 * 7)
#: prints 42
import sys
sys.modules["__main__"] = 7
