#: nested_quantifiers -> timeout ok exception:RecursionError
import re
re.match(r"(a+)+$", "a" * 40 + "b")

#: alternation_overlap -> timeout ok exception:RecursionError
import re
re.match(r"(a|aa)+$", "a" * 60 + "b")

#: three_stars -> timeout ok
import re
re.search(r".*.*.*=.*x", "=" * 5000)

#: backreference -> timeout ok
import re
re.match(r"^(.*?,){25}P$", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26")

#: quadratic_sub -> timeout ok
import re
re.sub(r"\s+$", "", " " * 50000 + "x")

#: huge_repetition -> exception:OverflowError exception timeout ok
import re
re.compile("a{4294967296}")

#: nested_repetition -> exception timeout ok memory stack
import re
re.match("((a{0,1000}){0,1000}){0,1000}b", "a" * 1000)

#: deep_groups -> exception:RecursionError exception stack ok timeout
import re
re.compile("(" * 5000 + "a" + ")" * 5000)

#: many_alternatives -> ok timeout exception memory
import re
re.compile("|".join("word%d" % n for n in range(20000)))

#: long_lookbehind -> exception ok timeout
import re
re.search("(?<=" + "a" * 5000 + ")b", "a" * 20000)

#: many_groups -> ok exception timeout
import re
re.match("(a?)" * 2000 + "a" * 2000, "a" * 2000)

#: findall_of_empty -> ok memory timeout exception:MemoryError
import re
len(re.findall("", "x" * 10**6))

#: substitution_explodes -> memory exception:MemoryError timeout exception:OverflowError
import re
text = "a"
while True:
    text = re.sub("a", "aaaaaaaaaa", text)

#: callback_that_loops -> timeout
import re
def replace(_):
    while True:
        pass
re.sub("a", replace, "a")

#: pattern_poisoned_cache -> ok
#: then import re; print(re.findall("a", "banana"))
#: prints ['a', 'a', 'a']
import re
for n in range(2000):
    re.compile("a%d" % n)
