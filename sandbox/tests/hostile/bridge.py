#: tool_that_is_none -> ok exception
import _forage_host
_forage_host.call("no_such_tool", {})

#: tool_without_arguments -> ok exception
import _forage_host
_forage_host.call("search_pages", {})

#: tool_with_other_arguments -> ok exception
import _forage_host
_forage_host.call("search_pages", {"n": 1, "text": "bridge"})

#: tool_with_one_more_argument -> exception ok
import _forage_host
_forage_host.call("search_pages", {"query": "bridge", "n": 1, "path": "@FILE@"})

#: tool_with_an_odd_name -> ok exception
import _forage_host
_forage_host.call("search_pages\x00\ud800" * 1000, {"query": "bridge"})

#: flood_of_refused_calls -> calls timeout exception
import _forage_host
while True:
    try:
        _forage_host.call("no_such_tool", {})
    except Exception:
        pass

#: through_the_module_of_a_tool -> exception ok
search_pages.__globals__["host"].call("read_section", {})

#: write_flood -> output
import _forage_host
while True:
    _forage_host.write_stdout("x" * 1000)

#: write_flood_to_both -> output
import _forage_host
while True:
    try:
        _forage_host.write_stderr("y" * 1000)
        _forage_host.write_stdout("x" * 1000)
    except Exception:
        pass

#: write_of_surrogates -> exception ok
import _forage_host
_forage_host.write_stdout("\ud800" * 1000)

#: clock_to_the_end_of_time -> ok exception
#: then import datetime, time; print(time.time() > 0)
#: ends ok exception
import time
for _ in range(100):
    time.sleep(1e300)

#: clock_by_odd_amounts -> ok exception
import _forage_host
for amount in (float("nan"), float("inf"), -float("inf"), -1.0, 1e308):
    _forage_host.advance(amount)

#: clock_far_off -> ok exception
#: then import datetime; print(datetime.datetime.now())
#: ends ok exception
import time
time.sleep(10**11)
time.localtime(), time.ctime(), time.strftime("%c")

#: entropy_of_gigabytes -> exception:MemoryError memory exception:OverflowError
import os
os.urandom(10**10)

#: entropy_in_a_loop -> timeout
import os
while True:
    os.urandom(10**6)

#: entropy_of_the_whole_memory -> timeout memory exception:MemoryError
import os
while True:
    os.urandom(150 * 10**6)

#: surroundings_poisoned -> ok exception
#: then x = 1
#: ends ok exception crash
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("_forage"):
        for attribute in list(vars(module)):
            if not attribute.startswith("__"):
                setattr(module, attribute, None)

#: description_that_loops -> exception timeout
import _forage
def forever(*_):
    while True:
        pass
_forage.describe = forever
1 / 0

#: description_that_lies -> exception
import _forage
_forage.describe = lambda *_: (1, 2)
1 / 0

#: description_of_megabytes -> exception output
import _forage
_forage.describe = lambda *_: ("x" * 10**7, "y" * 10**7, "z" * 10**7)
1 / 0

#: streams_that_loop -> ok
#: then print(6 * 7)
#: ends ok exception timeout
import _forage
def forever(*_):
    while True:
        pass
_forage.attach_streams = forever

#: limits_as_own_exceptions -> exception
import _forage
raise _forage.ToolCallLimit("not really")

#: output_limit_as_own_exception -> exception
import _forage
raise _forage.OutputLimit("not really")

#: seeds_again -> ok exception
import _forage
for seed in (0, -1, 10**100, None, "x"):
    _forage.start(seed)

#: tool_made_by_the_code -> exception ok
import _forage
_forage.make_tool("made_up", "", [])()
