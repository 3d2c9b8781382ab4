#: infinite -> timeout
def numbers():
    while True:
        yield 1
sum(numbers())

#: listed -> memory timeout exception:MemoryError
def numbers():
    n = 0
    while True:
        yield n
        n += 1
list(numbers())

#: ignores_close -> exception:RuntimeError
def stubborn():
    while True:
        try:
            yield
        except GeneratorExit:
            pass
one = stubborn()
next(one)
one.close()

#: ignores_its_end -> ok exception
#: then print(6 * 7)
#: prints 42
def stubborn():
    while True:
        try:
            yield
        except GeneratorExit:
            pass
one = stubborn()
next(one)
del one

#: loops_at_its_end -> ok timeout
def stubborn():
    try:
        yield
    finally:
        while True:
            pass
one = stubborn()
next(one)
del one

#: reenters_itself -> exception:ValueError
def own():
    yield next(one)
one = own()
next(one)

#: suspended_over_turns -> ok
#: then print(next(one), next(one))
#: prints 1 2
def numbers():
    n = 0
    while True:
        n += 1
        yield n
one = numbers()

#: throws_into_itself -> exception
def own():
    try:
        yield
    finally:
        one.throw(ValueError)
one = own()
next(one)
one.close()

#: unpacking_infinite -> timeout memory exception:MemoryError
import itertools
first, *rest = itertools.count()

#: star_arguments_of_infinite -> timeout memory exception:MemoryError
import itertools
print(*itertools.count())

#: zip_longest_of_infinite -> timeout memory exception:MemoryError
import itertools
list(itertools.zip_longest(itertools.count(), [1]))

#: coroutine_that_never_yields -> timeout exception
async def forever():
    while True:
        pass
forever().send(None)

#: awaitable_of_itself -> exception timeout stack
class A:
    def __await__(self):
        return self.__await__()
async def f():
    await A()
f().send(None)

#: asynchronous_generator -> exception ok timeout
async def numbers():
    while True:
        yield 1
async def f():
    async for _ in numbers():
        pass
f().send(None)

#: event_loop -> exception timeout ok
import asyncio
async def f():
    while True:
        await asyncio.sleep(0)
asyncio.run(f())

#: never_awaited -> ok
async def f():
    pass
for _ in range(1000):
    f()

#: context_manager_that_swallows -> timeout
class Swallow:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        return True
while True:
    with Swallow():
        raise ValueError

#: stop_iteration_storm -> exception:RuntimeError
def f():
    raise StopIteration
    yield
list(f())
