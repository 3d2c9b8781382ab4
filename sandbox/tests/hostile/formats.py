#: width -> exception:MemoryError exception:ValueError exception:OverflowError memory
"{:>10000000000}".format(1)

#: width_of_f_string -> exception:MemoryError exception:ValueError exception:OverflowError memory
f"{1:10000000000}"

#: width_of_percent -> exception:MemoryError exception:ValueError exception:OverflowError memory
"%10000000000d" % 1

#: width_below_pointer_size -> exception:MemoryError exception:OverflowError memory exception:ValueError
f"{1:2000000000}"

#: precision -> exception:MemoryError exception:ValueError exception:OverflowError memory ok timeout
"{:.1000000000f}".format(1.0)

#: precision_of_general -> exception:MemoryError exception:ValueError exception:OverflowError memory ok timeout
"{:.2147483647g}".format(0.1)

#: star_width -> exception:MemoryError exception:ValueError exception:OverflowError memory
"%*d" % (10**10, 1)

#: width_too_big_for_anything -> exception:ValueError exception:OverflowError exception:MemoryError
"{:99999999999999999999999999}".format(1)

#: grouping -> exception:MemoryError exception:ValueError exception:OverflowError memory
"{:0>1000000000,}".format(1)

#: nested_fields -> exception:ValueError exception:RecursionError stack
("{:" * 1000 + "}" * 1000).format(*range(1000))

#: attribute_walk -> ok exception
print("{0.__class__.__mro__[1].__subclasses__}".format(1))

#: globals_through_format -> ok exception
print("{0.__globals__}".format(search_pages)[:10])

#: format_that_recurses -> exception:RecursionError stack
class F:
    def __format__(self, spec):
        return f"{self}"
f"{F()}"

#: format_that_loops -> timeout
class F:
    def __format__(self, spec):
        while True:
            pass
f"{F()}"

#: format_that_is_no_string -> exception:TypeError
class F:
    def __format__(self, spec):
        return 7
f"{F()}"

#: template -> exception ok memory timeout crash
import string
string.Template("$x" * 100000).substitute(x="y" * 100000)

#: text_wrapped -> timeout ok memory
import textwrap
textwrap.fill("a " * 2000000, width=1)

#: strftime_of_many -> exception ok memory timeout
import time
time.strftime("%c" * 10**6)

#: pretty_printed -> exception:RecursionError ok timeout stack memory
import pprint
items = []
for _ in range(2000):
    items = [items, items]
pprint.pformat(items)

#: translate_explodes -> memory exception:MemoryError
("a" * 10**6).translate({97: "b" * 10**5})
