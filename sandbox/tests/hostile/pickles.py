#: runs_a_command -> exception
import pickle
pickle.loads(b"cos\nsystem\n(S'touch @FOLDER@/written'\ntR.")

#: evaluates -> timeout exception
import pickle
pickle.loads(b"cbuiltins\nexec\n(S'while True: pass'\ntR.")

#: reduces_to_exec -> timeout exception
import pickle
class R:
    def __reduce__(self):
        return exec, ("while True: pass",)
pickle.loads(pickle.dumps(R()))

#: deep -> exception:RecursionError stack ok
import pickle
items = []
for _ in range(10**5):
    items = [items]
pickle.dumps(items)

#: deep_to_load -> ok exception stack memory timeout
import pickle
pickle.loads(b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".")

#: huge_memo -> exception memory ok crash
import pickle
pickle.loads(b"\x80\x02Nr\xff\xff\xff\x7f.")

#: huge_frame -> exception memory
import pickle
pickle.loads(b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.")

#: huge_string -> exception memory
import pickle
pickle.loads(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.")

#: billion_laughs -> exception memory timeout ok
import pickle
data = b"\x80\x02]"
pickle.loads(b"\x80\x02" + b"]q\x00" + b"h\x00h\x00\x86" * 1000 + b".")

#: nothing_on_the_stack -> exception
import pickle
pickle.loads(b".")

#: garbage -> exception
import pickle
pickle.loads(bytes(range(256)) * 10)

#: of_the_tool -> exception ok
import pickle
pickle.loads(pickle.dumps(search_pages))("bridge")

#: state_that_loops -> timeout
import pickle
class S:
    def __getstate__(self):
        while True:
            pass
pickle.dumps(S())

#: copy_that_recurses -> exception:RecursionError stack
import copy
class C:
    def __deepcopy__(self, memo):
        return copy.deepcopy(self, memo)
copy.deepcopy(C())
