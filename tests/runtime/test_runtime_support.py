"""The pool of threads, the list of steps, and what Python says to them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from magmagraph.errors import CompilerUnavailable
from magmagraph.runtime.cpu import memory, threads
from magmagraph.runtime.cpu.memory import address_of, aligned_empty
from magmagraph.runtime.cpu.products import products
from magmagraph.runtime.cpu.support import Program, function_address, load_kernels, support

KERNELS = """
/* cells: out (int64), count, max_threads: adds 1 to each, and counts the bodies in out[count]. */
static void add_body(void* context, int64_t thread, int64_t threads)
{
    void** arguments = context;
    int64_t* out = arguments[0];
    int64_t begin, end, count = (int64_t)arguments[1];
    mg_split(count, 4, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) out[i] += 1;
    __atomic_fetch_add(&out[count], 1, __ATOMIC_RELAXED);
}
void add_one(void** arguments) { mg_parallel(add_body, arguments, (int64_t)arguments[2]); }

void share_one(void** arguments)
{
    mg_share(add_body, arguments, (int64_t)arguments[2], (int64_t)arguments[3]);
}

/* A body that calls the pool again. */
static void outer_body(void* context, int64_t thread, int64_t threads)
{
    void** arguments = context;
    int64_t* out = arguments[0];
    int64_t width = (int64_t)arguments[1] + 1;
    void* inner[3] = { out + thread * width, arguments[1], (void*)64 };
    mg_parallel(add_body, inner, 64);
}
void nested(void** arguments) { mg_parallel(outer_body, arguments, 2); }

void set(void** arguments) { *(int64_t*)arguments[0] = (int64_t)arguments[1]; }

#include <signal.h>
void interrupt(void** arguments) { (void)arguments; raise(SIGINT); }

/* Jobs that wait for one another, as those of a matrix product do. cells: mg_blas_jobs, counter,
   jobs; the counter ends at jobs, or at -1 where they did not run at once. */
#include <time.h>
static void meet(int thread, void* data, int jobs)
{
    int64_t* counter = *(int64_t**)data;
    time_t start = time(NULL);
    (void)thread;
    __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(counter, __ATOMIC_SEQ_CST) < jobs)
        if (time(NULL) - start > 30) { __atomic_store_n(counter, -1000, __ATOMIC_SEQ_CST); return; }
}
typedef void (*run_jobs)(int, void (*)(int, void*, int), int, uint64_t, void*, int);
void meeting(void** arguments)
{
    ((run_jobs)arguments[0])(1, meet, (int)(int64_t)arguments[2], 0, &arguments[1],
                             (int)(int64_t)arguments[2]);
}
static void meeting_body(void* context, int64_t thread, int64_t threads)
{
    (void)threads;
    if (thread == 0) meeting(context);
}
void nested_meeting(void** arguments) { mg_parallel(meeting_body, arguments, 2); }
"""


@pytest.fixture(scope="module")
def kernels():
    try:
        library = load_kernels(KERNELS)
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    return lambda name: function_address(library, name)


@pytest.fixture
def thread_count():
    """Let a test set the number of threads, and set it back."""
    yield threads.set_threads
    threads.set_threads(None)


def _run_python(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_element_is_met_once_by_any_number_of_threads(kernels, thread_count, count):
    thread_count(count)
    for size in (0, 1, 3, 4, 5, 31, 1000, 4097):
        out = np.zeros(size + 1, np.int64)
        Program([(kernels("add_one"), [address_of(out), size, 64])]).run()
        assert (out[:size] == 1).all(), size
        assert out[size] == count


def test_many_short_calls(kernels, thread_count):
    thread_count(3)
    out = np.zeros(101, np.int64)
    step = (kernels("add_one"), [address_of(out), 100, 64])
    program = Program([step] * 50)
    for _ in range(200):
        program.run()
    assert (out[:100] == 10_000).all()
    assert out[100] == 30_000


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are pinned on Linux only")
@pytest.mark.parametrize("count", [2, 3, 7])
def test_shares_of_late_workers_are_done_once(kernels, thread_count, count):
    """On one core workers begin when the caller sleeps or its time is over: it does their work."""
    thread_count(count)
    out = np.zeros(101, np.int64)
    program = Program([(kernels("add_one"), [address_of(out), 100, 64])] * 50)
    program.run()
    tasks = [int(task) for task in os.listdir("/proc/self/task")]
    before = {task: os.sched_getaffinity(task) for task in tasks}
    try:
        for task, cores in before.items():
            os.sched_setaffinity(task, {min(cores)})
        for _ in range(100):
            program.run()
    finally:
        for task, cores in before.items():
            os.sched_setaffinity(task, cores)
    for _ in range(100):
        program.run()
    assert (out[:100] == 50 * 201).all()
    assert out[100] == 50 * 201 * count


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is no other core to wake on, or no telling",
)
def test_a_sleeping_worker_wakes_on_another_core(kernels, thread_count):
    thread_count(2)
    out = np.zeros(101, np.int64)
    program = Program([(kernels("add_one"), [address_of(out), 100, 64])])
    assert threads._pool is not None
    threads._pool(2, 0)  # workers do not spin: all sleep between calls
    for _ in range(300):
        program.run()
    assert out[100] == 600
    mine = os.sched_getaffinity(0)
    others = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
    assert any(cores < mine and len(cores) == len(mine) - 1 for cores in others)


WAKING = 1 << 21  # as support.c has it


@pytest.fixture
def asleep(kernels, thread_count):
    """A function that runs a share of so much work, and says on how many threads; all sleep."""
    thread_count(2)
    assert threads._pool is not None
    threads._pool(2, 0)

    def shared(work: int) -> int:
        out = np.zeros(101, np.int64)
        Program([(kernels("share_one"), [address_of(out), 100, 64, work])]).run()
        assert (out[:100] == 1).all()
        return int(out[100])

    while shared(1) == 2:  # until the worker, which does not spin, has gone to sleep
        pass
    yield shared
    threads._pool(2, 0)
    shared(WAKING)  # who is awake hears that it is not to spin


def test_little_work_wakes_nobody(asleep):
    assert [asleep(WAKING // 2) for _ in range(20)] == [1] * 20
    assert asleep(WAKING) == 2


def test_little_work_that_comes_close_together_wakes(asleep):
    found: list[int] = []
    for _ in range(50):  # a worker may be about to sleep when it is told to spin
        threads._pool(2, 20_000_000_000)  # calls are as close as a worker spins
        found = [asleep(WAKING // 4) for _ in range(4)]
        threads._pool(2, 0)
        if found == [1, 1, 1, 2]:
            break
        asleep(WAKING)
        while asleep(1) == 2:
            pass
    assert found == [1, 1, 1, 2]


def test_what_is_measured_in_between_meets_every_element(kernels, thread_count):
    """Calls of one kind go on a team or alone, whichever takes less: some alone in any case."""
    thread_count(2)
    assert threads._pool is not None
    threads._pool(2, threads.SPIN_NANOSECONDS)  # however many cores there are
    out = np.zeros(101, np.int64)
    step = (kernels("share_one"), [address_of(out), 100, 64, WAKING])
    program = Program([step] * 50)
    for _ in range(400):
        program.run()
    assert (out[:100] == 20_000).all()
    assert 20_000 < out[100] < 40_000
    before = int(out[100])
    threads._pool(2, 0)  # nothing is measured where threads take turns on a core
    for _ in range(400):
        program.run()
    assert out[100] == before + 40_000


def test_a_team_has_at_most_the_threads_asked_for(kernels, thread_count):
    thread_count(4)
    for asked, got in ((-1, 1), (0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (1 << 40, 4)):
        out = np.zeros(9, np.int64)
        Program([(kernels("add_one"), [address_of(out), 8, asked])]).run()
        assert out[8] == got, asked


def test_a_nested_call_runs_alone(kernels, thread_count):
    thread_count(2)
    out = np.zeros((2, 11), np.int64)
    Program([(kernels("nested"), [address_of(out), 10])]).run()
    assert (out == 1).all()  # each body was one thread, which met every element


def test_several_python_threads_at_once(kernels, thread_count):
    thread_count(3)
    outs = [np.zeros(1001, np.int64) for _ in range(6)]

    def work(out: np.ndarray) -> None:
        program = Program([(kernels("add_one"), [address_of(out), 1000, 64])] * 20)
        for _ in range(50):
            program.run()

    workers = [threading.Thread(target=work, args=(out,)) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
        assert not worker.is_alive()
    assert all((out[:1000] == 1000).all() for out in outs)


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("name", ["meeting", "nested_meeting"])
def test_jobs_of_blas_run_all_at_once(kernels, thread_count, name, jobs):
    thread_count(2)
    counter = np.zeros(1, np.int64)
    cells = [support().address("mg_blas_jobs"), address_of(counter), jobs]
    program = Program([(kernels(name), cells)])
    for _ in range(20):
        counter[0] = 0
        program.run()
        assert counter[0] == jobs


def test_products_of_numpy_from_several_threads(kernels, rng):
    # Whole numbers, so that the order of sums does not matter.
    a = rng.integers(-4, 5, (300, 200)).astype(np.float32)
    b = rng.integers(-4, 5, (200, 250)).astype(np.float32)
    right = a.astype(np.int64) @ b.astype(np.int64)
    wrong = []

    def work() -> None:
        for _ in range(30):
            if not (a @ b == right).all():
                wrong.append(threading.get_ident())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
        assert not worker.is_alive()
    assert wrong == []


FORK = """
import os, threading, time
import numpy as np
from magmagraph.runtime.cpu import threads
from magmagraph.runtime.cpu.products.products import gemm_step
from magmagraph.runtime.cpu.support import Program, address_of, function_address, load_kernels
threads.set_threads(2)
add_one = function_address(load_kernels(KERNELS), "add_one")

def check():
    out = np.zeros(1001, np.int64)
    a, b = np.full((300, 300), 2.0), np.empty((300, 300))
    gemm = gemm_step(a.dtype, address_of(b), address_of(a), address_of(a), 300, 300, 300)
    program = Program([(add_one, [address_of(out), 1000, 64]), gemm] * 3)
    for _ in range(10):
        program.run()
    return (out[:1000] == 30).all() and (b == 1200.0).all()

stop = threading.Event()
def busy():
    while not stop.is_set():
        check()

others = [threading.Thread(target=busy) for _ in range(BUSY)]
for other in others:
    other.start()
right = check()
for _ in range(5):
    child = os.fork()
    if child == 0:
        a = np.full((300, 300), 2.0)
        os._exit(0 if check() and (a @ a == 1200.0).all() else 1)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            status = "the child hangs"
            break
        time.sleep(0.001)
    right = right and status == 0 and check()
stop.set()
for other in others:
    other.join()
print("right" if right else f"wrong: {status}")
"""


@pytest.mark.parametrize("busy", [0, 2])
def test_a_forked_child_has_a_pool_of_its_own(kernels, busy):
    program = f"KERNELS = {KERNELS!r}\nBUSY = {busy}\n" + FORK
    assert _run_python(program) == "right\n"


def test_steps_run_in_order_and_cells_can_be_changed(kernels):
    out = np.zeros(2, np.int64)
    steps = [
        (kernels("set"), [address_of(out), 3]),
        (kernels("add_one"), [address_of(out), 1, 1]),
        (kernels("set"), [address_of(out) + 8, 5]),
    ]
    program = Program(steps)
    assert len(program) == 3
    assert program.run() == 3
    assert out.tolist() == [4, 5]
    other = np.zeros(2, np.int64)
    program.cells[program.slot(1, 0)] = address_of(other)
    program.cells[program.slot(0, 1)] = 7
    program.run()
    assert out.tolist() == [7, 5]
    assert other.tolist() == [1, 1]
    for step, index in ((3, 0), (-1, 0), (1, 3), (0, -1)):
        with pytest.raises(IndexError):
            program.slot(step, index)


def test_a_program_without_steps(kernels):
    program = Program([])
    assert program.run() == 0
    assert program.run_timed() == []


def test_run_outlives_its_program_and_holds_what_it_needs(kernels):
    out = np.zeros(2, np.int64)
    held = [np.zeros(1)]
    run = Program([(kernels("set"), [address_of(out), 9])], keep=held).run
    before = sys.getrefcount(held)
    gc.collect()
    assert run() == 1
    assert out[0] == 9
    del run
    gc.collect()
    assert sys.getrefcount(held) == before - 1


def test_every_step_is_timed(kernels):
    out = np.zeros(100_001, np.int64)
    program = Program(
        [(kernels("add_one"), [address_of(out), 100_000, 1]), products.zero_step(0, 0)]
    )
    taken = program.run_timed()
    assert len(taken) == 2
    assert all(isinstance(time, int) and time >= 0 for time in taken)
    assert taken[0] > 0
    assert out[0] == 1


def test_an_interrupt_is_seen_after_the_last_step(kernels):
    out = np.zeros(1, np.int64)
    program = Program([(kernels("interrupt"), []), (kernels("set"), [address_of(out), 1])])
    with pytest.raises(KeyboardInterrupt):
        program.run()
    assert out[0] == 1


def test_addresses_are_those_of_numpy():
    whole = np.arange(60, dtype=np.float64).reshape(3, 4, 5)
    arrays = [
        whole,
        whole[1],
        whole[:, ::-1, 2:],
        whole.T,
        np.zeros(()),
        np.zeros((0, 4)),
        whole[1:1],
        np.zeros(3, np.dtype("i1,f8")),
        np.frombuffer(b"abcd", np.uint8),
        np.ma.masked_array(whole).data,
        whole.view(np.recarray),
    ]
    for array in arrays:
        assert address_of(array) == array.ctypes.data
        assert memory._data_by_attribute(array) == array.ctypes.data


@pytest.mark.parametrize("size", [0, 1, 1000, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_memory_is_aligned_and_can_be_written(size, alignment):
    memory = aligned_empty(size, alignment)
    assert (memory.shape, memory.dtype) == ((size,), np.uint8)
    assert address_of(memory) % alignment == 0
    memory[...] = 7
    assert (memory == 7).all()


def test_everything_imports_without_a_compiler():
    program = (
        "from magmagraph.errors import CompilerUnavailable\n"
        "from magmagraph.runtime.cpu import memory, support, threads\n"
        "from magmagraph.runtime.cpu.products import blas, products\n"
        "import numpy as np\n"
        "threads.set_threads(1)\n"
        "assert memory.aligned_empty(10).shape == (10,)\n"
        "try:\n"
        "    support.Program([])\n"
        "except CompilerUnavailable as error:\n"
        "    print(str(error).splitlines()[0])\n"
    )
    assert _run_python(program, MAGMAGRAPH_CC="/nonexistent/cc") == (
        "MAGMAGRAPH_CC names '/nonexistent/cc', which is no program here\n"
    )
