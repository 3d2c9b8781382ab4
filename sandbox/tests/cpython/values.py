"""What other Pythons print or answer otherwise."""

import calendar
import collections
import datetime
import pprint
import time
import traceback
from array import array
from collections import OrderedDict


def attempt(act):
    try:
        print(act())
    except BaseException as error:
        print(type(error).__name__, error, repr(error.__cause__))


zero, below = 0, -3
print(zero / below, zero / 3, 0 / -3, -0.0, divmod(0.0, below), zero // below, f"{zero / below:.2f}", round(-0.4, 0))
print(array("f", [1.0]), array("d", [1.5, -0.0, 1e20]), array("i", [1]), array("u", "ab"), array("d"), array("f", [0.1]))
for count in (1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70):
    attempt(lambda: len(range(count)))
for _ in range(300):
    assert len(range(1 << 40)) == 1 << 40

print(OrderedDict([("a", 1)]), OrderedDict(), OrderedDict(a=1, b=OrderedDict(c=[2])))
pprint.pprint({"a": OrderedDict(b=2)})
print(type("Named", (OrderedDict,), {})(a=1), collections.Counter("aab"), collections.ChainMap({1: 2}))
print(calendar.SATURDAY, calendar.MONDAY, type(calendar.FRIDAY), calendar.monthrange(2024, 2), calendar.weekday(2024, 1, 1))
print(calendar.month(2024, 2))
print(hasattr(int, "is_integer"), (3.0).is_integer(), hasattr(True, "is_integer"))
numbers = [1, 2]
print(f"{x for x in numbers}".split(" at ")[0], f"{sum(x for x in numbers)}", f"{[x for x in numbers]}")


def delegating():
    yield from range(2)


def yielding():
    yield 1
    yield 2


for make in (delegating, yielding):
    generator = make()
    next(generator)
    attempt(lambda: generator.throw(StopIteration))
    attempt(lambda: next(generator))
    generator = make()
    next(generator)
    attempt(lambda: generator.throw(ValueError("thrown")))


def unbound():
    total += 1


for act in (unbound, lambda: max([]), lambda: [1] + 1, lambda: {[]: 1}, lambda: compile("x = (1,", "program.py", "exec")):
    try:
        act()
    except Exception:
        print(traceback.format_exc().splitlines()[-1])
try:
    try:
        max([])
    except ValueError as first:
        raise KeyError("second") from first
except KeyError as second:
    print(repr(second.__cause__), second.__cause__.args)
for text, form in (("12 May", "%d %B"), ("29 Feb", "%d %b"), ("7 13", "%d %H")):
    attempt(lambda: datetime.datetime.strptime(text, form))
    attempt(lambda: time.strptime(text, form))
