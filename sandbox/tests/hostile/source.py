#: brackets -> exception stack
#: repeat 20000 "("
x = @@

#: brackets_closed -> exception ok stack
#: repeat 10000 "(" ")"
x = @@

#: lists -> exception ok stack
#: repeat 20000 "[" "]"
x = @@

#: dictionaries -> exception ok stack
#: repeat 10000 "{1:" "}"
x = @@

#: minus_signs -> exception ok stack
#: repeat 60000 "-"
x = @@1

#: nots -> exception ok stack
#: repeat 15000 "not "
x = @@1

#: sum_of_ones -> exception ok stack
#: repeat 30000 "1+"
x = @@1

#: powers -> exception ok stack timeout memory
#: repeat 20000 "1**"
x = @@1

#: comparisons -> ok exception stack
#: repeat 30000 "1<"
x = @@1

#: attributes -> exception stack
#: repeat 30000 ".a"
x = 1
x@@

#: calls -> exception stack
#: repeat 30000 "()"
x = print
x@@

#: subscripts -> exception stack
#: repeat 20000 "[0]"
x = ""
x@@

#: lambdas -> exception ok stack
#: repeat 7000 "lambda: "
x = @@1

#: conditionals -> exception ok stack
#: repeat 5000 "1 if 1 else "
x = @@1

#: walrus -> exception ok stack
#: repeat 10000 "(a:=" ")"
x = @@

#: strings_side_by_side -> ok exception stack
#: repeat 20000 "'' "
x = @@''

#: f_strings_nested -> exception ok stack
#: repeat 3000 "f'{" "}'"
x = @@

#: f_string_of_many -> ok exception stack
#: repeat 15000 "{1}"
x = f'@@'

#: elifs -> ok exception stack
#: repeat 4000 "elif 0: 1\n"
if 0: 1
@@

#: ifs_without_bodies -> exception ok stack
#: repeat 2000 "if 1:  \n"
@@

#: decorators -> exception ok stack
#: repeat 10000 "@int\n"
@@
def f(): pass

#: many_arguments -> ok exception stack
#: repeat 20000 "1,"
print(*[@@][:0])

#: call_of_many_arguments -> ok exception stack
#: repeat 20000 "1,"
max(@@)

#: many_names -> exception ok
#: repeat 20000 "a="
@@1

#: many_statements -> ok exception
#: repeat 15000 "a=1\n"
@@

#: many_semicolons -> exception ok
#: repeat 30000 ";"
a = 1@@

#: pattern_nested -> exception ok stack
#: repeat 10000 "[" "]"
match 1:
    case @@:
        pass

#: types_nested -> exception ok stack
#: repeat 8000 "list[" "]"
x: @@ = 1

#: star_targets -> exception ok stack
#: repeat 20000 "*"
@@a = 1

#: tuple_targets -> exception ok stack
#: repeat 10000 "(" ",)"
for @@ in []: pass

#: comprehensions_nested -> exception ok stack
#: repeat 1500 "[x for x in " "]"
x = @@

#: too_long -> code_size
#: repeat 70000 "#"
a = 1
@@

#: too_long_by_a_string -> code_size
#: repeat 70000 "x"
a = "@@"

#: just_short_enough -> ok
#: repeat 65000 "#"
a = 1
@@

#: huge_integer -> exception ok timeout
#: repeat 60000 "9"
x = @@

#: huge_hexadecimal -> ok exception
#: repeat 60000 "f"
x = 0x@@

#: huge_float -> ok exception
#: repeat 60000 "9"
x = 0.@@

#: huge_exponent -> ok exception
#: repeat 60000 "9"
x = 1e@@

#: folded_constants -> ok timeout memory exception
x = 2 ** 2 ** 2 ** 2 ** 2 ** 2 if 0 else ((1 << 30) << 30) << 30

#: folded_strings -> exception memory ok timeout
x = "a" * 1000000000 * 1000000000 if 0 else "b" * 100000000

#: nul -> exception
#: repeat 1 "\u0000"
x = 1@@

#: nul_in_a_string -> exception ok
#: repeat 1 "\u0000"
x = "@@"

#: nul_alone -> exception
#: repeat 1 "\u0000"
@@

#: replacement_character -> exception:SyntaxError
#: repeat 1 "\ufffd"
x = @@

#: byte_order_mark -> ok exception:SyntaxError
#: repeat 1 "\ufeff"
@@x = 1

#: byte_order_mark_inside -> exception:SyntaxError
#: repeat 1 "\ufeff"
x = @@1

#: right_to_left_override -> ok exception:SyntaxError
#: repeat 1 "\u202e"
x = "@@"

#: form_feeds -> ok exception
#: repeat 1000 "\f\u000b"
@@

#: carriage_returns -> ok exception
#: repeat 1000 "\r"
x = 1@@

#: line_separators -> ok exception
#: repeat 1000 "\u2028"
x = "@@"

#: combining_marks -> ok exception
#: repeat 20000 "\u0301"
x@@ = 1

#: names_of_one_letter_in_many_scripts -> ok exception
𝐱 = 1
print(x)

#: lone_surrogate_escape -> ok exception
x = "\ud800"
x.encode()

#: surrogate_in_a_name -> ok exception
globals()["\ud800"] = 1
setattr(type("A", (), {}), "\udc00", 1)

#: surrogate_compiled -> exception ok
exec("x = '\ud800'")

#: wrong_encoding_declared -> ok exception
# -*- coding: utf-16 -*-
x = 1

#: unknown_encoding_declared -> ok exception
# -*- coding: no-such-encoding -*-
x = 1

#: bytes_compiled -> exception
exec(b"x = '\xff\xfe'")

#: backslashes -> exception ok
#: repeat 30000 "\\\n"
@@

#: empty -> ok

#: unicode_names -> ok exception
#: repeat 2000 "\\N{GREEK SMALL LETTER ALPHA}"
x = "@@"

#: octal_and_null_escapes -> ok exception
#: repeat 10000 "\\0"
x = "@@"
