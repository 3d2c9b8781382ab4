#: forever -> timeout
while True:
    pass

#: prints_then_forever -> timeout
#: out before
kept = "changed"
print("before")
while True:
    pass

#: counting -> timeout
n = 0
while True:
    n += 1

#: for_over_huge_range -> timeout
for n in range(10**18):
    pass

#: sum_of_huge_range -> timeout
sum(range(10**15))

#: all_of_count -> timeout
import itertools
all(itertools.count(1))

#: nested_comprehension -> timeout memory
[0 for a in range(10**6) for b in range(10**6) if False]

#: in_infinite_iterator -> timeout
import itertools
-1 in itertools.count()

#: deque_of_infinite -> timeout
import collections, itertools
collections.deque(itertools.repeat(0), maxlen=0)

#: max_of_cycle -> timeout memory
import itertools
max(itertools.cycle([1, 2]))

#: two_argument_iter -> timeout
for _ in iter(int, 1):
    pass

#: growing_while_iterating -> timeout memory exception:MemoryError
items = [0]
for item in items:
    items.append(item)

#: permutations -> timeout
import itertools
for _ in itertools.permutations(range(20)):
    pass

#: exponential_fibonacci -> timeout
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
fib(60)

#: quadratic_string -> timeout memory exception:MemoryError
text = ""
while True:
    text = "x" + text + "y"

#: while_else_continue -> timeout
while True:
    try:
        continue
    finally:
        pass

#: finally_that_loops -> timeout
try:
    1 / 0
finally:
    while True:
        pass

#: sort_with_slow_key -> timeout
def key(_):
    while True:
        pass
sorted([2, 1], key=key)

#: infinite_comparison -> timeout exception:RecursionError
class Odd:
    def __eq__(self, other):
        while True:
            pass
Odd() == Odd()

#: contains_of_slow_eq -> timeout
class Slow:
    def __eq__(self, other):
        while True:
            pass
    __hash__ = None
Slow() in [1, 2, 3]

#: colliding_keys -> timeout ok
class Key:
    def __init__(self, n):
        self.n = n
    def __hash__(self):
        return 1
    def __eq__(self, other):
        return self.n == other.n
table = {Key(n): n for n in range(20000)}

#: string_search_quadratic -> ok timeout exception
("a" * 2_000_000 + "b").find("a" * 1_000_000 + "b" * 2)

#: replace_explosion -> timeout memory exception:MemoryError exception:OverflowError
text = "a"
while True:
    text = text.replace("a", "aa")
