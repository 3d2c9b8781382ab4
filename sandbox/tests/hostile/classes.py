#: dataclass_of_many_fields -> ok exception timeout
import dataclasses
dataclasses.make_dataclass("D", [f"x{n}" for n in range(2000)])

#: dataclass_that_contains_itself -> exception:RecursionError stack ok
import dataclasses
@dataclasses.dataclass
class D:
    x: object = None
one = D()
one.x = one
dataclasses.asdict(one)

#: dataclass_repr_of_itself -> ok
import dataclasses
@dataclasses.dataclass
class D:
    x: object = None
one = D()
one.x = one
print(one)

#: dataclass_with_code_as_a_name -> exception ok
import dataclasses
dataclasses.make_dataclass("D", [("x): pass\nwhile True: pass\ndef f(a", int)])

#: named_tuple_with_code_as_a_name -> exception:ValueError
import collections
collections.namedtuple("T", ["x): pass\nwhile True", "y"])

#: named_tuple_of_many -> ok exception timeout
import collections
collections.namedtuple("T", [f"x{n}" for n in range(5000)])

#: enum_of_many -> ok timeout exception
import enum
enum.Enum("E", [f"A{n}" for n in range(10000)])

#: metaclass_that_loops -> timeout
class M(type):
    def __new__(*_):
        while True:
            pass
class A(metaclass=M):
    pass

#: metaclass_namespace_that_loops -> timeout
class N(dict):
    def __setitem__(self, *_):
        while True:
            pass
class M(type):
    def __prepare__(*_):
        return N()
class A(metaclass=M):
    x = 1

#: metaclass_that_makes_classes -> exception:RecursionError stack memory timeout
class M(type):
    def __init__(cls, *a):
        M("B", (cls,), {})
class A(metaclass=M):
    pass

#: inheritance_of_many -> ok exception timeout
bases = tuple(type(f"B{n}", (), {}) for n in range(5000))
type("A", bases, {})

#: inheritance_diamonds -> ok exception timeout memory
one = two = object
for n in range(300):
    one, two = type("A", (one, two) if one is not two else (one,), {}), type("B", (one,), {})

#: subclass_check_that_loops -> timeout
class M(type):
    def __instancecheck__(cls, other):
        while True:
            pass
class A(metaclass=M):
    pass
isinstance(1, A)

#: except_clause_that_loops -> timeout exception
class M(type):
    def __subclasscheck__(cls, other):
        while True:
            pass
    __instancecheck__ = __subclasscheck__
class E(Exception, metaclass=M):
    pass
try:
    1 / 0
except E:
    while True:
        pass

#: descriptor_that_loops -> timeout
class D:
    def __get__(self, *_):
        while True:
            pass
class A:
    x = D()
A().x

#: set_name_that_loops -> timeout
class D:
    def __set_name__(self, *_):
        while True:
            pass
class A:
    x = D()

#: init_subclass_that_loops -> timeout
class A:
    def __init_subclass__(cls):
        while True:
            pass
class B(A):
    pass

#: abstract_classes -> ok timeout memory exception
import abc
class A(abc.ABC):
    pass
for n in range(3000):
    A.register(type(f"C{n}", (), {}))
    isinstance(n, A)

#: cached_everything -> memory timeout exception:MemoryError
import functools
@functools.cache
def f(n):
    return [n] * 1000
n = 0
while True:
    f(n)
    n += 1

#: total_ordering_of_itself -> exception:RecursionError stack
import functools
@functools.total_ordering
class A:
    def __lt__(self, other):
        return self >= other
    def __eq__(self, other):
        return False
A() < A()

#: length_that_lies -> exception
class A:
    def __len__(self):
        return -1
len(A())

#: length_hint_that_lies -> exception ok memory
class A:
    def __iter__(self):
        return iter([1])
    def __length_hint__(self):
        return 2**60
list(A())

#: bool_that_loops -> timeout
class A:
    def __bool__(self):
        while True:
            pass
if A():
    pass

#: iterator_over_itself -> memory timeout exception:MemoryError
class A:
    def __iter__(self):
        return self
    def __next__(self):
        return self
list(A())

#: slots_of_many -> ok exception timeout
type("A", (), {"__slots__": [f"x{n}" for n in range(10000)]})

#: generic_tower -> ok exception timeout memory stack
from typing import Generic, TypeVar
T = TypeVar("T")
kind = list
for _ in range(5000):
    kind = list[kind]
hash(kind)
