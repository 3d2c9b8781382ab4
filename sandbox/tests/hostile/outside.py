#: read_a_file -> exception
print(open("@FILE@").read())

#: read_a_file_through_io -> exception
import io
print(io.open("@FILE@").read())

#: read_a_file_through_os -> exception
import os
print(os.read(os.open("@FILE@", os.O_RDONLY), 100))

#: read_a_file_through_codecs -> exception
import codecs
print(codecs.open("@FILE@").read())

#: read_a_file_through_fileinput -> exception
import fileinput
print(list(fileinput.input("@FILE@")))

#: read_a_file_through_linecache -> ok exception
import linecache
print(repr(linecache.getline("@FILE@", 1)))

#: read_a_file_through_a_traceback -> exception
exec(compile("\n1 / 0", "@FILE@", "exec"))

#: read_a_file_through_an_import -> exception
import sys
sys.path.insert(0, "@FOLDER@")
import secret

#: read_a_file_through_importlib -> exception
import importlib.util
spec = importlib.util.spec_from_file_location("secret", "@FOLDER@/secret.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

#: read_a_file_through_runpy -> exception
import runpy
runpy.run_path("@FOLDER@/secret.py")

#: read_a_file_through_a_descriptor -> exception ok
import io
for number in range(3, 64):
    try:
        print(io.FileIO(number).read(10))
    except OSError:
        pass

#: write_a_file -> exception
open("@FOLDER@/written", "w").write("x")

#: write_a_file_through_os -> exception
import os
os.open("@FOLDER@/written", os.O_CREAT | os.O_WRONLY)

#: write_a_file_through_pathlib -> exception
import pathlib
pathlib.Path("@FOLDER@/written").write_text("x")

#: write_a_file_through_tempfile -> exception
import tempfile
tempfile.NamedTemporaryFile(dir="@FOLDER@")

#: write_a_file_through_shelve -> exception
import shelve
shelve.open("@FOLDER@/written")["x"] = 1

#: write_a_file_through_zipfile -> exception
import zipfile
zipfile.ZipFile("@FOLDER@/written.zip", "w").writestr("x", "y")

#: write_a_file_through_logging -> exception
import logging
logging.basicConfig(filename="@FOLDER@/written")

#: remove_a_file -> exception
import os
os.remove("@FILE@")

#: rename_a_file -> exception
import os
os.rename("@FILE@", "@FOLDER@/other")

#: remove_a_tree -> exception
import shutil
shutil.rmtree("@FOLDER@")

#: make_a_folder -> exception
import os
os.mkdir("@FOLDER@/made")

#: list_a_folder -> exception
import os
print(os.listdir("@FOLDER@"))

#: list_a_folder_through_glob -> exception ok
import glob
print(glob.glob("@FOLDER@/*"))

#: walk_up -> exception ok
import os
print(os.path.exists("@FILE@"), os.getcwd())

#: proc -> exception
print(open("/proc/self/environ").read())

#: environment -> ok exception
import os
print(dict(os.environ))

#: environment_changed -> ok exception
import os
os.environ["PATH"] = "@FOLDER@"
os.putenv("PATH", "@FOLDER@")

#: shell -> exception
import os
os.system("touch @FOLDER@/written")

#: exec_a_program -> exception
import os
os.execv("/bin/sh", ["sh", "-c", "touch @FOLDER@/written"])

#: fork -> exception
import os
os.fork()

#: subprocess -> exception
import subprocess
subprocess.run(["touch", "@FOLDER@/written"])

#: subprocess_through_posix -> exception
import _posixsubprocess

#: kill_the_parent -> exception
import os
os.kill(os.getppid(), 9)

#: abort -> exception crash
import os
os.abort()

#: exit_of_the_process -> exception crash
import os
os._exit(0)

#: socket -> exception
import socket
socket.create_connection(("127.0.0.1", @PORT@))

#: socket_of_c -> exception
import _socket
_socket.socket().connect(("127.0.0.1", @PORT@))

#: http -> exception
import urllib.request
urllib.request.urlopen("http://127.0.0.1:@PORT@/")

#: http_client -> exception
import http.client
http.client.HTTPConnection("127.0.0.1", @PORT@).request("GET", "/")

#: asyncio_connection -> exception
import asyncio
asyncio.run(asyncio.open_connection("127.0.0.1", @PORT@))

#: native_code -> exception
import ctypes
ctypes.string_at(0)

#: native_code_of_c -> exception
import _ctypes

#: mapped_memory -> exception
import mmap
mmap.mmap(-1, 4096)

#: standard_input -> exception ok
print(repr(input("more? ")))

#: standard_input_read -> exception ok
import sys
print(repr(sys.stdin.read()))

#: breakpoint -> exception ok
breakpoint()

#: debugger -> exception ok
import pdb
pdb.set_trace()

#: web_browser -> exception ok
import webbrowser
print(webbrowser.open("http://127.0.0.1:@PORT@/"))

#: users -> exception ok
import getpass
print(getpass.getuser())

#: host_name -> exception ok
import platform
print(platform.node(), platform.uname())

#: entropy_is_seeded -> ok exception
#: same
import os, random, secrets, uuid
print(os.urandom(8), random.random(), random.SystemRandom().random(), secrets.token_hex(4), uuid.uuid4())

#: clock_is_fixed -> ok exception
#: same
import datetime, time
print(time.time(), time.monotonic(), time.perf_counter(), datetime.datetime.now(), time.process_time(), time.localtime())

#: addresses_repeat -> ok
#: same
print(object(), id([]), hash("abc"), {"a", "b", "c", "d"}, hash(object()))
