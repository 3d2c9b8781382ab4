#: subclasses_of_object -> ok exception
#: then print(6 * 7)
#: prints 42
print(len(().__class__.__bases__[0].__subclasses__()) > 0)
for kind in ().__class__.__bases__[0].__subclasses__():
    try:
        kind()
    except BaseException:
        pass

#: popen_through_subclasses -> exception:IndexError exception
[k for k in object.__subclasses__() if k.__name__ == "Popen"][0](["ls"])

#: loader_through_subclasses -> ok exception
for kind in object.__subclasses__():
    if "Importer" in kind.__name__ or "Loader" in kind.__name__:
        print(kind.load_module("posix").listdir("/"))

#: globals_of_functions -> ok exception
import json
print("os" in json.dumps.__globals__, json.dumps.__globals__["__builtins__"] is not None)

#: frames_upwards -> ok exception
import sys
frame = sys._getframe()
while frame:
    print(frame.f_code.co_name, sorted(frame.f_globals)[:3])
    frame = frame.f_back

#: frames_of_a_traceback -> ok exception
#: then x = 1
#: ends ok exception
try:
    search_pages(1, 2, 3, 4, 5)
except TypeError as error:
    trace = error.__traceback__
    while trace:
        for name, value in list(trace.tb_frame.f_globals.items()):
            trace.tb_frame.f_globals[name] = None
        trace = trace.tb_next

#: globals_of_a_tool -> ok exception
#: then x = 1
#: ends ok exception
search_pages.__globals__.clear()

#: code_of_a_tool_replaced -> ok exception
search_pages.__code__ = (lambda query, n=10: "mine").__code__
print(search_pages("bridge"))

#: closure_of_a_tool -> ok exception
#: then print(6 * 7)
#: prints 42
for cell in search_pages.__closure__ or ():
    cell.cell_contents = None

#: code_object_by_hand -> exception ok stack crash
code = (lambda: 0).__code__
kind = type(code)
broken = code.replace(co_code=bytes(range(256)) * 100)
eval(broken)

#: code_object_of_negative_sizes -> exception ok stack crash memory
code = (lambda: 0).__code__
eval(code.replace(co_stacksize=-1, co_nlocals=10**9, co_consts=()))

#: code_object_marshalled -> exception ok crash stack
import marshal
eval(marshal.loads(b"\xe3" + b"\xff" * 200))

#: marshal_bomb -> exception memory timeout ok crash stack
import marshal
marshal.loads(b"(\xff\xff\xff\x7f")

#: object_without_init -> ok exception
made = [kind.__new__(kind) for kind in (int, str, list, dict, set, tuple, bytes)]
import io
repr(io.StringIO.__new__(io.StringIO)), repr(object.__new__(type("X", (), {})))

#: module_types_by_hand -> exception ok
import types
types.FunctionType((lambda: x).__code__, {})()

#: class_of_self_changed -> exception:TypeError
(1).__class__ = str

#: type_of_builtins_patched -> exception:TypeError exception:AttributeError
int.__add__ = lambda a, b: 0

#: dict_of_a_type_through_gc -> ok exception
#: then print(1 + 1)
#: prints 2
import gc
for table in gc.get_referents(int.__dict__):
    table["__add__"] = lambda a, b: 0

#: mro_by_hand -> exception
class M(type):
    def mro(cls):
        return [cls, 1, None]
class A(metaclass=M):
    pass

#: slots_of_another -> exception
class A:
    __slots__ = ("x",)
class B:
    __slots__ = ("y",)
A.x.__set__(B(), 1)
