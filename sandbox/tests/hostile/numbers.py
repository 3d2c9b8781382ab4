#: power_of_power -> timeout exception:MemoryError exception:OverflowError memory
9**9**9

#: ten_to_a_hundred_million -> timeout memory exception:MemoryError
10 ** 10**8

#: huge_shift -> exception:MemoryError exception:OverflowError memory
1 << 10**12

#: shift_to_the_memory_limit -> exception:MemoryError exception:OverflowError memory ok timeout
x = 1 << (8 * 200 * 2**20)

#: repeated_squaring -> timeout memory exception:MemoryError exception:OverflowError
x = 3
while True:
    x *= x

#: factorial -> timeout memory
import math
math.factorial(10**7)

#: factorial_by_hand -> timeout
n = 1
for i in range(1, 10**6):
    n *= i

#: binomial -> timeout memory ok
import math
math.comb(10**7, 5 * 10**6)

#: modular_power -> timeout ok
pow(3, 10**200000, 10**200000 + 1)

#: negative_modular_power_chain -> timeout ok exception:ValueError
x = 10**30000 + 1
for _ in range(1000):
    x = pow(x, -1, 10**30000) + 1

#: digits_of_a_huge_int -> exception:ValueError timeout
str(10**100000)

#: digits_without_the_limit -> timeout ok exception:ValueError memory
import sys
sys.set_int_max_str_digits(0)
len(str(3 ** (2 * 10**6)))

#: int_of_a_huge_string -> exception:ValueError timeout
int("9" * 10**6)

#: int_of_binary_digits -> ok timeout memory exception:MemoryError
int("1" * 10**7, 2)

#: hexadecimal_of_huge -> ok timeout memory exception:MemoryError
len(hex(1 << 10**8))

#: decimal_precision -> timeout memory exception:MemoryError exception
import decimal
decimal.getcontext().prec = 10**8
decimal.Decimal(1) / 3

#: decimal_huge_exponent -> exception ok timeout memory
import decimal
int(decimal.Decimal("1e999999"))

#: decimal_power -> timeout exception memory
import decimal
decimal.getcontext().prec = 10**6
decimal.Decimal(2) ** decimal.Decimal("0.5")

#: fractions_explode -> timeout memory exception
import fractions
x = fractions.Fraction(1, 3)
while True:
    x = x * x + fractions.Fraction(1, 7)

#: fraction_of_huge_exponent -> timeout memory exception ok
import fractions
fractions.Fraction("1e100000000")

#: gcd_of_huge -> timeout ok
import math
a, b = 3**600000, 5**400000
math.gcd(a, b)

#: isqrt_of_huge -> timeout ok memory
import math
math.isqrt(10 ** (2 * 10**6))

#: float_formats_of_huge_precision -> exception ok memory timeout
len("%.1000000000f" % 1.0)

#: range_arithmetic -> exception:OverflowError ok
len(range(10**30))

#: huge_repeat_count -> exception
"x" * (10**30)

#: huge_index -> exception:IndexError exception:OverflowError exception:TypeError
[1][10**30]

#: bytes_of_int -> exception:OverflowError exception:MemoryError memory
(1).to_bytes(10**12, "big")

#: round_of_huge -> ok exception
round(1.5, -(10**18)), round(12345, 10**6)

#: hash_of_huge -> ok timeout
hash(7**500000)

#: random_of_huge -> ok timeout memory exception
import random
random.getrandbits(10**9) > 0

#: product_of_ints -> timeout memory
import math
math.prod(range(1, 10**6))
