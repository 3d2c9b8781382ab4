#: zlib_bomb -> memory exception ok timeout
import zlib
bomb = zlib.compress(bytes(50 << 20))
for _ in range(5):
    zlib.decompress(bomb) * 2

#: zlib_tower -> memory exception ok timeout
import zlib
data = bytes(20 << 20)
for _ in range(3):
    data = zlib.compress(data)
while True:
    data = zlib.decompress(data) * 100

#: zlib_huge_buffer -> exception memory ok
import zlib
zlib.decompress(zlib.compress(b"x"), bufsize=10**12)

#: zlib_garbage -> exception
import zlib
zlib.decompress(b"\xff" * 1000)

#: gzip_bomb -> memory exception ok timeout
import gzip
gzip.decompress(gzip.compress(bytes(100 << 20)))

#: bz2_bomb -> memory exception timeout ok
import bz2
bz2.decompress(bz2.compress(bytes(100 << 20)))

#: lzma_bomb -> memory exception timeout ok
import lzma
lzma.decompress(lzma.compress(bytes(100 << 20)))

#: zip_bomb -> memory exception timeout ok
import io, zipfile
file = io.BytesIO()
with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("x", bytes(100 << 20))
zipfile.ZipFile(file).read("x")

#: base64_of_megabytes -> ok memory exception timeout
import base64
base64.b64encode(bytes(100 << 20))

#: base85_garbage -> exception ok timeout
import base64
base64.b85decode(b"~" * 10**6)

#: hash_of_megabytes -> ok timeout exception memory
import hashlib
for _ in range(100):
    hashlib.sha256(bytes(10 << 20)).hexdigest()

#: slow_key_derivation -> timeout exception ok
import hashlib
hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**9)

#: scrypt -> exception timeout memory ok
import hashlib
hashlib.scrypt(b"x", salt=b"y", n=2**20, r=8, p=1)

#: shake_of_gigabytes -> exception memory timeout ok
import hashlib
hashlib.shake_128(b"x").digest(2**31)

#: struct_of_gigabytes -> exception memory
import struct
struct.pack("10000000000x")

#: struct_of_odd_formats -> exception
import struct
struct.unpack("999999999999999999999999i", b"")

#: csv_field -> exception ok
import csv
list(csv.reader(["x" * 10**6]))

#: xml_entities -> exception memory timeout ok
import xml.etree.ElementTree as tree
entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
tree.fromstring(f'<!DOCTYPE x [<!ENTITY e0 "lol">{entities}]><x>&e11;</x>')

#: json_of_huge_numbers -> ok exception
import json
json.loads("1" * 100000)

#: json_of_duplicates -> ok timeout memory
import json
json.loads("{" + ",".join('"a":1' for _ in range(10**5)) + "}")

#: difference_of_long_texts -> timeout ok
import difflib
difflib.SequenceMatcher(None, "ab" * 10000, "ba" * 10000).ratio()

#: unicode_normalised -> ok timeout memory
import unicodedata
unicodedata.normalize("NFKD", "\ufdfa" * 10**6)

#: dates_out_of_range -> exception
import datetime
datetime.date.max + datetime.timedelta(days=10**9)

#: calendar_of_an_odd_year -> exception ok
import calendar
calendar.calendar(10**18)
