#: plain -> exception:RecursionError
def f():
    return f()
f()

#: deep_with_raised_limit -> exception:RecursionError stack exception:MemoryError memory timeout
import sys
sys.setrecursionlimit(10**9)
def f(n):
    return f(n + 1) + 1
f(0)

#: caught_in_a_loop -> timeout
def f():
    f()
while True:
    try:
        f()
    except RecursionError:
        pass

#: mutual -> exception:RecursionError
def even(n):
    return odd(n - 1)
def odd(n):
    return even(n - 1)
even(1)

#: through_repr -> exception:RecursionError
class R:
    def __repr__(self):
        return repr(self)
repr(R())

#: through_getattr -> exception:RecursionError
class G:
    def __getattr__(self, name):
        return getattr(self, name + "x")
G().x

#: through_call -> exception:RecursionError stack
class C:
    def __call__(self):
        return self()
C()()

#: through_property -> exception:RecursionError
class P:
    @property
    def p(self):
        return self.p
P().p

#: through_eq -> exception:RecursionError
class E:
    def __eq__(self, other):
        return other == self
E() == E()

#: through_hash -> exception:RecursionError
class H:
    def __hash__(self):
        return hash(self)
{H(): 1}

#: through_init_subclass -> exception:RecursionError timeout
class B:
    def __init_subclass__(cls):
        type("D", (cls,), {})
class D(B):
    pass

#: through_sort_key -> exception:RecursionError
def key(x):
    return sorted([x, x], key=key)
sorted([1, 2], key=key)

#: through_iter -> exception:RecursionError stack
class I:
    def __iter__(self):
        return iter(self)
list(I())

#: nested_list_repr -> exception:RecursionError stack ok
items = []
for _ in range(10**5):
    items = [items]
len(repr(items))

#: nested_list_equality -> exception:RecursionError stack ok
one, two = [], []
for _ in range(10**5):
    one, two = [one], [two]
one == two

#: nested_list_freed -> ok exception:RecursionError stack
items = None
for _ in range(10**6):
    items = [items]
del items

#: nested_tuple_hash -> exception:RecursionError stack ok
items = ()
for _ in range(10**5):
    items = (items,)
hash(items)

#: linked_objects_freed -> ok stack timeout memory
class Node:
    def __init__(self, next):
        self.next = next
head = None
for _ in range(200000):
    head = Node(head)
head = None

#: nested_generators -> exception:RecursionError stack ok
def chain(n):
    if n:
        yield from chain(n - 1)
    yield n
sum(chain(10**5))

#: nested_iterators -> exception:RecursionError stack ok
items = iter([])
for _ in range(10**5):
    items = map(None, items)
list(items)

#: chained_itertools -> exception:RecursionError stack ok
import itertools
items = iter([1])
for _ in range(10**5):
    items = itertools.chain(items)
list(items)

#: nested_partial -> exception:RecursionError stack ok
import functools
f = int
for _ in range(10**5):
    f = functools.partial(f)
f()

#: nested_json -> exception:RecursionError stack ok
import json
json.loads("[" * 10**5 + "]" * 10**5)

#: nested_json_out -> exception:RecursionError stack exception:ValueError ok
import json
items = []
for _ in range(10**5):
    items = [items]
json.dumps(items)

#: deepcopy_of_nested -> exception:RecursionError stack
import copy
items = []
for _ in range(10**5):
    items = [items]
copy.deepcopy(items)

#: isinstance_of_nested_tuples -> exception:RecursionError stack ok
kinds = int
for _ in range(10**5):
    kinds = (kinds,)
isinstance("", kinds)

#: exception_chain -> ok exception:RecursionError stack exception:ValueError timeout
error = None
for n in range(10**5):
    made = ValueError(n)
    made.__cause__ = error
    error = made
raise error

#: recursion_in_handler -> exception:RecursionError timeout stack
def f():
    try:
        f()
    finally:
        f()
f()

#: decorated_tower -> exception:RecursionError stack ok
def wrap(f):
    return lambda: f()
f = lambda: 1
for _ in range(10**5):
    f = wrap(f)
f()

#: super_tower -> exception:RecursionError stack ok timeout memory
made = object
for n in range(3000):
    made = type("C%d" % n, (made,), {"f": (lambda up: lambda self: getattr(super(up[0], self), "f", int)())([None])})
made().f()

#: compare_self_containing -> exception:RecursionError ok stack
one, two = [], []
one.append(two)
two.append(one)
one == two

#: union_types -> exception:RecursionError stack ok timeout memory
kinds = int
for n in range(3000):
    kinds = kinds | list[kinds]
repr(kinds)
