#: destructor_that_loops -> timeout ok
class D:
    def __del__(self):
        while True:
            pass
one = D()
del one

#: destructor_that_raises -> ok
class D:
    def __del__(self):
        raise ValueError("late")
one = D()
del one

#: destructor_that_revives -> timeout ok memory
alive = []
class D:
    def __del__(self):
        alive.append(self)
while True:
    D()
    alive.clear()

#: destructor_that_makes_another -> ok timeout exception:RecursionError stack memory
class D:
    def __del__(self):
        D()
D()

#: destructor_left_for_later -> ok
#: then print(6 * 7)
#: prints 42
class D:
    def __del__(self):
        while True:
            pass
late = D()

#: destructor_at_the_next_turn -> ok
#: then late = None
#: ends ok timeout
class D:
    def __del__(self):
        while True:
            pass
late = D()

#: cycles -> ok timeout memory exception:MemoryError
class N:
    pass
for _ in range(10**6):
    a, b = N(), N()
    a.x, b.x = b, a

#: cycles_with_destructors -> ok timeout memory
import gc
class N:
    def __del__(self):
        self.x.y = self
for _ in range(10**4):
    a, b = N(), N()
    a.x, b.x = b, a
del a, b
gc.collect()

#: collection_in_a_loop -> timeout exception
import gc
while True:
    gc.collect()

#: collection_in_a_destructor -> ok exception timeout
import gc
class D:
    def __del__(self):
        gc.collect()
for _ in range(1000):
    D()

#: collector_disabled -> memory timeout exception:MemoryError ok
import gc
gc.disable()
while True:
    a = ["x" * 10000]
    a.append(a)

#: weak_references_with_callbacks -> ok exception
import weakref
class N:
    pass
def gone(reference):
    raise ValueError(reference())
for _ in range(1000):
    one = N()
    kept_reference = weakref.ref(one, gone)
    del one

#: finalizer -> ok exception timeout
import weakref
class N:
    pass
def forever():
    while True:
        pass
one = N()
weakref.finalize(one, forever)
del one

#: list_changed_while_freed -> ok
items = []
class D:
    def __del__(self):
        items.append(D)
items.extend(D() for _ in range(1000))
items.clear()

#: dictionary_changed_while_compared -> ok exception
table = {}
class K:
    def __hash__(self):
        return 1
    def __eq__(self, other):
        table.clear()
        return False
for _ in range(100):
    table[K()] = 1

#: list_changed_while_sorted -> exception:ValueError ok
items = list(range(100))
def key(n):
    items.append(n)
    return n
items.sort(key=key)

#: list_changed_while_compared -> ok exception
one, two = [], []
class E:
    def __eq__(self, other):
        one.clear()
        two.clear()
        return True
one.extend(E() for _ in range(100))
two.extend(E() for _ in range(100))
one == two

#: set_changed_while_intersected -> ok exception
items = set()
class K:
    def __init__(self, n):
        self.n = n
    def __hash__(self):
        items.clear()
        return 1
    def __eq__(self, other):
        items.clear()
        return False
items.update(K(n) for n in range(10))
items & {K(1), K(2)}

#: buffer_resized_while_exported -> exception:BufferError ok
data = bytearray(100)
view = memoryview(data)
data.extend(b"x" * 10**6)

#: list_freed_while_joined -> ok exception
items = ["a"] * 100
class S(str):
    def __str__(self):
        items.clear()
        return "b"
",".join(map(str, [S()] + items))
