#: threads -> exception timeout ok
import threading
for _ in range(1000):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()

#: thread_of_c -> exception ok timeout
import _thread
_thread.start_new_thread(lambda: [None for _ in iter(int, 1)], ())

#: timer -> exception ok timeout
import threading
threading.Timer(0.01, lambda: [None for _ in iter(int, 1)]).start()

#: pool -> exception timeout ok
import concurrent.futures
list(concurrent.futures.ThreadPoolExecutor().map(lambda n: [None for _ in iter(int, 1)], range(8)))

#: processes -> exception
import multiprocessing
multiprocessing.Process(target=print).start()

#: lock_taken_twice -> exception timeout crash ok
import threading
lock = threading.Lock()
lock.acquire()
lock.acquire()

#: lock_of_c_taken_twice -> exception timeout crash ok
import _thread
lock = _thread.allocate_lock()
lock.acquire()
lock.acquire()

#: event_waited_for -> exception timeout crash ok
import threading
threading.Event().wait()

#: queue_waited_for -> exception timeout crash ok
import queue
queue.Queue().get()

#: sleep -> ok exception timeout
import time
time.sleep(10**6)

#: sleep_of_infinity -> ok exception timeout
import time
time.sleep(float("inf"))

#: sleep_of_nothing -> ok exception
import time
time.sleep(-1)

#: sleeps_in_a_loop -> timeout
import time
while True:
    time.sleep(0.001)

#: select_as_sleep -> exception ok timeout
import select
select.select([], [], [], 10**6)

#: waiting_for_the_clock -> timeout
import time
end = time.monotonic() + 10
while time.monotonic() < end:
    pass

#: signal_handler -> exception ok
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
signal.alarm(1)

#: signal_raised -> exception ok crash
import signal
signal.raise_signal(signal.SIGKILL)

#: switch_interval -> ok exception
import sys
sys.setswitchinterval(10**6)

#: at_exit -> ok exception
#: then print(6 * 7)
#: prints 42
import atexit
def forever():
    while True:
        pass
atexit.register(forever)
