#: everything_caught -> timeout
while True:
    try:
        while True:
            pass
    except BaseException:
        pass

#: finally_after_the_limit -> timeout
#: out
try:
    while True:
        pass
finally:
    print("never")

#: exit_of_a_with_after_the_limit -> timeout
class Hold:
    def __enter__(self):
        pass
    def __exit__(self, *_):
        while True:
            pass
with Hold():
    while True:
        pass

#: memory_caught -> memory timeout ok
blocks = []
while True:
    try:
        blocks.append(bytes(2**24))
    except BaseException:
        pass

#: memory_caught_and_freed -> memory timeout
while True:
    blocks = []
    try:
        while True:
            blocks.append(bytes(2**20))
    except MemoryError:
        pass

#: memory_filled_and_kept -> ok
#: then print(len(blocks) == full > 100)
#: prints True
blocks = []
try:
    while True:
        blocks.append(bytes(2**20))
except MemoryError:
    pass
full = len(blocks)

#: memory_filled_is_freed_later -> ok
#: before blocks = [bytes(2**20) for _ in range(100)]
#: then del blocks[:]; print(len(bytes(100 * 2**20)))
#: prints 104857600
try:
    while True:
        blocks.append(bytes(300 * 2**10))
except MemoryError:
    pass

#: memory_filled_by_small_blocks -> ok
#: then print(len(blocks) == full > 100)
#: prints True
blocks = []
try:
    while True:
        blocks.append(bytes(2**17))
except MemoryError:
    pass
full = len(blocks)

#: memory_filled_by_texts -> ok memory
#: before blocks = [bytes(2**20) for _ in range(200)]
#: then del blocks[:]; print(len(bytes(100 * 2**20)))
#: prints 104857600
try:
    while True:
        blocks.append("x" * 20000 + str(len(blocks)))
except MemoryError:
    pass

#: output_caught -> output timeout
import sys
while True:
    try:
        sys.stdout.write("x" * 10000)
    except BaseException:
        pass

#: limits_at_once -> timeout memory output calls
kept_blocks = []
while True:
    try:
        print("x" * 1000)
        kept_blocks.append(bytes(2**20))
        search_pages("bridge")
    except BaseException:
        pass

#: time_then_memory -> timeout memory
import itertools
for n in itertools.count():
    try:
        bytes(2**27)
    except MemoryError:
        pass

#: state_before_is_back -> timeout
#: before state = {"a": [1, 2], "n": iter([7, 8, 9])}; next(state["n"])
#: then print(state["a"], next(state["n"]))
#: prints [1, 2] 8
state["a"].append(3)
next(state["n"])
del kept
while True:
    pass

#: classes_are_back -> memory exception:MemoryError timeout
#: before class A: n = 1
#: then print(A.n, A().n)
#: prints 1 1
A.n = 2
held = []
while True:
    held.append(bytes(2**20))

#: generators_are_back -> timeout
#: before g = (n * n for n in range(10)); next(g), next(g)
#: then print(next(g), next(g))
#: prints 4 9
while True:
    next(g, None)

#: random_is_back -> timeout
#: before import random; random.seed(3); before = random.getstate()
#: then print(random.getstate() == before)
#: prints True
while True:
    random.random()

#: modules_are_back -> timeout
#: before import json; dumps = json.dumps
#: then print(json.dumps is dumps, json.dumps([1]))
#: prints True [1]
import json
json.dumps = None
while True:
    pass

#: limit_twice -> timeout
#: then x = [n for n in iter(int, 1)]
#: ends timeout memory
while True:
    pass

#: builtins_are_back -> timeout
import builtins
del builtins.print, builtins.len, builtins.search_pages
while True:
    pass
