#: flood -> calls
kept = None
while True:
    search_pages("bridge")

#: exactly_the_limit -> ok
for _ in range(64):
    search_pages("bridge")

#: one_more_than_the_limit -> calls
for _ in range(65):
    search_pages("bridge")

#: limit_caught -> calls ok
for _ in range(1000):
    try:
        search_pages("bridge")
    except BaseException:
        pass

#: limit_caught_forever -> calls timeout
while True:
    try:
        read_section("page-1#0")
    except BaseException:
        continue

#: failing_calls_count -> calls
while True:
    try:
        read_section("none")
    except KeyError:
        pass

#: in_a_comprehension -> calls
[search_pages(str(n)) for n in range(10**6)]

#: in_a_generator -> calls
def pages():
    while True:
        yield search_pages("bridge")
list(pages())

#: through_map -> calls
list(map(search_pages, ["bridge"] * 1000))

#: in_a_sort_key -> calls
sorted(range(1000), key=lambda n: len(search_pages(str(n))))

#: in_a_destructor -> ok calls exception timeout
class Caller:
    def __del__(self):
        while True:
            search_pages("bridge")
one = Caller()
del one

#: in_a_repr -> calls exception:RecursionError
class Caller:
    def __repr__(self):
        search_pages("bridge")
        return repr(self)
repr(Caller())

#: recursive -> calls
def f():
    search_pages("bridge")
    f()
f()

#: counted_per_turn -> ok
#: then print(sum(len(search_pages("bridge")) > 0 for _ in range(64)))
#: prints 64
for _ in range(64):
    search_pages("bridge")
