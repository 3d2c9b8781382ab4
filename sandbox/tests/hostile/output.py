#: print_flood -> output
kept = None
while True:
    print("x" * 100)

#: one_huge_line -> output
print("x" * (2 << 20))

#: without_newlines -> output timeout
while True:
    print(end="y")

#: through_sys_stdout -> output
import sys
while True:
    sys.stdout.write("z" * 1000)

#: caught_output_limit -> output timeout
while True:
    try:
        print("x" * 1000)
    except BaseException:
        pass

#: wide_characters -> output
while True:
    print("\U0001F600" * 1000)

#: just_below -> ok
#: then print(6 * 7)
#: prints 42
print("x" * ((1 << 20) - 1))

#: stderr_flood -> ok output timeout exception
import sys
for _ in range(10000):
    print("x" * 1000, file=sys.stderr)

#: warnings_flood -> ok output timeout exception
import warnings
warnings.simplefilter("always")
for n in range(10000):
    warnings.warn("x" * 1000 + str(n))

#: huge_exception_message -> exception:ValueError output memory
raise ValueError("x" * (50 << 20))

#: exception_whose_str_loops -> timeout
class Slow(Exception):
    def __str__(self):
        while True:
            pass
raise Slow()

#: exception_whose_str_raises -> exception
class Bad(Exception):
    def __str__(self):
        raise ValueError("no text")
raise Bad()

#: exception_whose_str_is_no_string -> exception
class Bad(Exception):
    def __str__(self):
        return 7
raise Bad()

#: exception_whose_repr_prints -> exception:ValueError output
class Loud:
    def __repr__(self):
        while True:
            print("x" * 1000)
raise ValueError(Loud())

#: print_to_itself -> ok exception
import sys
print("x", file=type("F", (), {"write": lambda self, text: sys.stdout.write(text * 2)})())

#: print_with_odd_separator -> exception:TypeError
print(1, 2, sep=3)

#: displayhook -> ok exception
import sys
sys.displayhook("x")

#: control_characters -> ok
print("\x00\x01\x1b[2J\r\b\x7f")

#: lone_surrogates -> ok exception:UnicodeEncodeError
print("\ud800\udfff")

#: bytes_to_stdout -> ok exception
import sys
sys.stdout.buffer.write(b"\xff\xfe\x00")

#: undecodable_then_more -> ok exception
#: then print("after")
#: prints after
import sys
sys.stdout.buffer.write(b"\xf0\x9f")

#: group_of_exceptions -> exception output
raise ExceptionGroup("many", [ValueError("x" * 1000) for _ in range(1000)])
