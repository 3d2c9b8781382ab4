#: huge_string -> exception:MemoryError exception:OverflowError memory
"a" * 10**10

#: huge_list -> exception:MemoryError exception:OverflowError memory
[0] * 10**10

#: list_above_the_limit -> exception:MemoryError memory
[0] * (100 * 2**20)

#: bytes_above_the_limit -> exception:MemoryError memory
bytes(300 * 2**20)

#: bytearray_grows -> memory exception:MemoryError timeout
buffer = bytearray()
while True:
    buffer += bytes(2**20)

#: list_grows -> memory exception:MemoryError timeout
#: out begun
print("begun")
kept = []
while True:
    kept.append("x" * 1000 + str(len(kept)))

#: dict_grows -> memory exception:MemoryError timeout
table = {}
while True:
    table[len(table)] = [0] * 100

#: doubling_string -> memory exception:MemoryError exception:OverflowError
text = "x"
while True:
    text += text

#: doubling_list -> memory exception:MemoryError exception:OverflowError
items = [0]
while True:
    items += items

#: doubling_nested_copy -> memory exception:MemoryError timeout exception:RecursionError
import copy
tree = [0]
while True:
    tree = [copy.deepcopy(tree), copy.deepcopy(tree)]

#: tuple_of_range -> memory exception:MemoryError exception:OverflowError timeout
tuple(range(10**9))

#: set_of_range -> memory exception:MemoryError timeout
set(range(10**9))

#: join_of_many -> memory exception:MemoryError exception:OverflowError timeout crash
",".join(["x" * 10**6] * 10**5)

#: ljust -> exception:MemoryError exception:OverflowError memory
"x".ljust(10**10)

#: zfill -> exception:MemoryError exception:OverflowError memory
"1".zfill(10**12)

#: expandtabs -> exception:MemoryError exception:OverflowError memory timeout
("\t" * 1000).expandtabs(10**9)

#: product_pools -> memory exception:MemoryError timeout
import itertools
itertools.product(range(10**8), repeat=10)

#: tee_buffers -> memory exception:MemoryError timeout
import itertools
one, two = itertools.tee(itertools.count())
while True:
    next(one)

#: exhaust_then_more -> memory exception:MemoryError ok
#: then print(6 * 7)
#: prints 42
blocks = []
try:
    while True:
        blocks.append(bytes(2**20))
except MemoryError:
    blocks.clear()

#: many_classes -> memory exception:MemoryError timeout
made = []
while True:
    made.append(type("C" + str(len(made)), (), {"f": lambda self: self}))

#: many_functions -> memory exception:MemoryError timeout
made = []
while True:
    made.append(eval("lambda x: x + %d" % len(made)))

#: interned_names -> memory exception:MemoryError timeout
import sys
kept_names = []
while True:
    kept_names.append(sys.intern("name%d" % len(kept_names)))

#: string_io_grows -> memory exception:MemoryError timeout
import io
file = io.StringIO()
while True:
    file.write("x" * 10**6)

#: array_grows -> memory exception:MemoryError timeout exception:OverflowError exception:ModuleNotFoundError
import array
numbers = array.array("d", [0.0])
while True:
    numbers.extend(numbers)

#: memory_in_steps_over_turns -> ok
#: then more = [bytes(2**20) for _ in range(1000)]
#: ends memory exception:MemoryError
held = [bytes(2**20) for _ in range(50)]
