#: redefined -> ok
#: redefined search_pages
#: then print(search_pages("x"))
#: prints mine
def search_pages(query):
    return "mine"

#: redefined_as_a_value -> ok
#: redefined read_section
#: then print(read_section)
#: prints 7
read_section = 7

#: redefined_in_the_builtins -> ok exception
#: redefined view_sections
import builtins
builtins.view_sections = 7

#: deleted -> ok exception
#: then print(6 * 7)
#: prints 42
import builtins
del builtins.search_pages

#: deleted_as_a_global -> exception:NameError
del search_pages

#: redefined_in_a_function -> ok
def f():
    search_pages = 7
    return search_pages
f()

#: keyword_unknown -> exception:TypeError
search_pages(text="bridge")

#: no_argument -> exception:TypeError
search_pages()

#: too_many_arguments -> exception:TypeError
search_pages("a", 1, 2, 3)

#: argument_twice -> exception:TypeError
search_pages("a", query="b")

#: huge_argument -> ok exception memory
search_pages("x" * (50 << 20))

#: huge_number -> ok exception timeout
search_pages("x", 10 ** (10**5))

#: huge_list -> ok exception memory timeout
search_pages([0] * 10**6)

#: deep_list -> exception ok stack
items = []
for _ in range(10**5):
    items = [items]
search_pages(items)

#: rather_deep_list -> ok exception stack
items = []
for _ in range(900):
    items = [items]
search_pages(items)

#: cyclic_list -> exception
items = []
items.append(items)
search_pages(items)

#: cyclic_dictionary -> exception
table = {}
table["x"] = table
search_pages(table)

#: function -> exception
search_pages(len)

#: object -> exception
search_pages(object())

#: set -> exception ok
search_pages({1, 2})

#: bytes -> exception ok
search_pages(b"\xff")

#: not_a_number -> exception ok
search_pages(float("nan"), float("inf"))

#: complex -> exception
search_pages(1j)

#: keys_that_are_no_strings -> ok exception
search_pages({1: 2, None: 3, (1, 2): 4})

#: keys_that_collide_as_text -> ok exception
search_pages({1: "a", "1": "b", True: "c", "true": "d", None: "e", "null": "f"})

#: lone_surrogate -> ok exception
search_pages("\ud800")

#: nul -> ok
search_pages("a\x00b")

#: escapes -> ok
print(search_pages('"}],"x":{\\u0000') is not None)

#: str_that_misbehaves -> ok exception
class S(str):
    def __str__(self):
        raise ValueError("no")
    def encode(self, *_):
        while True:
            pass
    def __iter__(self):
        while True:
            yield "x"
    def __len__(self):
        return -1
search_pages(S("bridge"))

#: object_whose_str_loops -> exception timeout
class S:
    def __str__(self):
        while True:
            pass
    __repr__ = __str__
search_pages(S())

#: index_that_misbehaves -> exception ok timeout
class N(int):
    def __index__(self):
        while True:
            pass
    __int__ = __repr__ = __str__ = __index__
search_pages("bridge", N(3))

#: index_of_an_object -> exception timeout
class N:
    def __index__(self):
        while True:
            pass
search_pages("bridge", N())

#: float_that_misbehaves -> exception ok timeout
class F(float):
    def __repr__(self):
        while True:
            pass
    __str__ = __repr__
search_pages("bridge", F(1.5))

#: list_that_grows -> exception ok timeout memory
class L(list):
    def __iter__(self):
        while True:
            yield 1
    def __len__(self):
        return 10**12
    def __getitem__(self, _):
        return self
search_pages(L([1]))

#: dictionary_that_grows -> exception ok timeout memory
class D(dict):
    def items(self):
        n = 0
        while True:
            yield str(n), n
            n += 1
    keys = __iter__ = items
search_pages(D(a=1))

#: dictionary_changed_by_its_keys -> exception ok
class K(str):
    def __hash__(self):
        table.clear()
        return 1
    def __eq__(self, other):
        return False
table = {}
try:
    table[K("a")] = 1
    table[K("b")] = 2
finally:
    search_pages(table)

#: result_changed -> ok
#: then print(search_pages("bridge")[0]["id"])
#: prints page-1
hits = search_pages("bridge")
hits[0]["id"] = "changed"
hits.clear()

#: raised_error_kept -> ok
#: then print(type(error).__name__)
#: prints KeyError
try:
    read_section("none")
except KeyError as raised:
    error = raised

#: raised_error -> exception:KeyError
read_section("none")

#: called_by_name -> ok exception
import builtins
getattr(builtins, "search" + "_pages")("bridge")

#: copied -> ok exception
import copy
copy.deepcopy(search_pages)("bridge")

#: bound_to_a_class -> ok exception
class A:
    find = search_pages
A().find()

#: used_as_a_decorator -> exception ok
@search_pages
def f():
    pass

#: called_in_a_destructor -> ok
class D:
    def __del__(self):
        search_pages("bridge")
one = D()
del one

#: called_while_a_call_converts -> exception ok timeout calls stack
class S(dict):
    def items(self):
        search_pages(self)
        return []
    keys = __iter__ = items
search_pages(S(a=1))

#: json_poisoned -> ok exception
#: then print(search_pages("bridge")[0]["id"])
#: prints page-1
import json
for name in list(vars(json)):
    if not name.startswith("__"):
        setattr(json, name, None)
for part in (json.encoder, json.decoder, json.scanner) if json.encoder else ():
    for name in list(vars(part)):
        setattr(part, name, None)
print(search_pages("bridge")[0]["id"])

#: json_parts_poisoned -> ok exception
#: then print(search_pages("bridge")[0]["id"])
#: prints page-1
import json, json.encoder, json.decoder
json.dumps = json.loads = lambda *a, **k: "poisoned"
json.encoder.JSONEncoder.encode = json.decoder.JSONDecoder.decode = lambda *a: "poisoned"
json.encoder.c_make_encoder = json.encoder.py_encode_basestring = None

#: re_poisoned -> ok exception
#: then print(search_pages("bridge")[0]["id"])
#: prints page-1
import re
for name in list(vars(re)):
    if not name.startswith("__"):
        setattr(re, name, None)

#: io_poisoned -> ok exception
#: then print(search_pages("bridge")[0]["id"])
#: prints page-1
import io, codecs
io.StringIO = io.TextIOWrapper = io.BytesIO = None
codecs.lookup = codecs.encode = codecs.decode = None

#: types_of_the_bridge_poisoned -> ok exception
#: then x = 6 * 7
#: prints
import builtins
builtins.dict = builtins.list = builtins.tuple = builtins.int = builtins.type = builtins.callable = None
