"""Work that goes on beside the call: threads, processes, and streams that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import BodyView, ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import MODULE, HostCall, dotted, evidence, host_calls
from d2k.analyzers.patterns.hosts import short
from d2k.spec.facts import Kind
from d2k.spec.finding import Status

DEFINITION = (
    "Host code starts threads or processes, or puts work on a stream of its own that the caller's stream does not "
    "wait for."
)

STARTS = (
    *("threading.", "_thread.", "multiprocessing.", "concurrent.futures.", "asyncio.", "torch.multiprocessing."),
    *("joblib.", "greenlet.", "gevent."),
)
LOCKS = frozenset(
    {"Lock", "RLock", "local", "Event", "Semaphore", "Condition", "get_ident", "current_thread", "main_thread"}
)
CALLS = frozenset({"thread", "jthread", "async", "pthread_create", "os.fork", "fork", "vfork", "clone", "thrd_create"})
MAKES = frozenset(
    {
        "torch.cuda.Stream",
        "torch.Stream",
        "cudaStreamCreate",
        "cudaStreamCreateWithFlags",
        "cudaStreamCreateWithPriority",
        "cuStreamCreate",
        "getStreamFromPool",
        "cupy.cuda.Stream",
    }
)
JOINS = frozenset(
    {
        "wait_stream",
        "wait_event",
        "synchronize",
        "wait",
        "cudaStreamSynchronize",
        "cudaStreamWaitEvent",
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
        "cuStreamWaitEvent",
        "cuStreamSynchronize",
        "block",
    }
)


def suspect(program: ProgramView) -> Suspicion | None:
    started = [one for one in host_calls(program) if _starts(one)]
    if started:
        names = ", ".join(dict.fromkeys(one.name for one in started))
        return Suspicion(f"starts threads or processes: {names}", evidence(started))
    loose = list(_loose_streams(program))
    if loose:
        return Suspicion("puts work on a stream that nothing waits for", evidence(loose, "stream of its own"))
    return None


def _starts(call: HostCall) -> bool:
    if call.name in CALLS:
        return True
    return call.name.startswith(STARTS) and short(call.name) not in LOCKS


def _loose_streams(program: ProgramView) -> Iterator[HostCall]:
    """Streams that a function makes, puts work on, and does not join afterwards."""
    for host, view in program.live_hosts.items():
        if host == MODULE:
            continue
        made = [value for value in view.values(Kind.HOST_CALL, Kind.CALL) if _makes(view, value)]
        for value in made:
            if _is_used(view, value) and not _is_joined(view, value):
                yield HostCall(host, view, value, dotted(view.op(value)))


def _makes(view: BodyView, value: int) -> bool:
    name = dotted(view.op(value))
    return name in MAKES or short(name) in MAKES


def _is_used(view: BodyView, value: int) -> bool:
    """Work stands after the stream was made current or handed on."""
    users = [user for user in view.flows_to(value) if user != value]
    created = view.op(value).args  # C functions return the stream through their argument
    users += [user for arg in created for user in view.users(arg) if user > value]
    return any(
        view.op(user).kind is Kind.LAUNCH
        or dotted(view.op(user)).endswith(
            ("cuda.stream", "StreamGuard", "setCurrentCUDAStream", "StreamContext", "set_stream")
        )
        for user in users
    )


def _is_joined(view: BodyView, value: int) -> bool:
    return any(
        short(dotted(view.op(later))) in JOINS for later in view.values(Kind.HOST_CALL, Kind.CALL) if later > value
    )


TRITON = """
import threading
HEAD
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, Y):
    BODY
    return Y
"""
WORK = "scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)"
THREAD = f"threading.Thread(target=lambda: {WORK}).start()"
LOOSE = f"side = torch.cuda.Stream()\n    with torch.cuda.stream(side):\n        {WORK}"
JOINED = f"{LOOSE}\n    torch.cuda.current_stream().wait_stream(side)"
CUDA = """
#include <thread>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(float* x, int n) {
  BODY
  scale<<<n / 256, 256>>>(x, n);
}
"""

EXAMPLES = (
    Example("thread", "triton", TRITON.replace("HEAD", "").replace("BODY", THREAD), Status.PRESENT),
    Example("stream that is not joined", "triton", TRITON.replace("HEAD", "").replace("BODY", LOOSE), Status.PRESENT),
    Example(
        "stream that is joined",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", JOINED),
        Status.ABSENT,
        trap="a second stream that the caller's stream waits for",
    ),
    Example(
        "lock",
        "triton",
        TRITON.replace("HEAD", "LOCK = threading.Lock()").replace("BODY", f"with LOCK:\n        {WORK}"),
        Status.ABSENT,
        trap="look-alike: a lock starts nothing",
    ),
    Example("thread", "cuda", CUDA.replace("BODY", "std::thread([] {}).detach();"), Status.PRESENT),
    Example(
        "in a comment", "cuda", CUDA.replace("BODY", "// std::thread([] {}).detach();"), Status.ABSENT, trap="comment"
    ),
)
