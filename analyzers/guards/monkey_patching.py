"""Functions of other modules that are replaced."""

from __future__ import annotations

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.global_state import FLAGS
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import HostCall, evidence, host_calls
from d2k.spec.finding import Status

DEFINITION = (
    "Host code replaces a member of a module that is not its own: torch, triton, time, builtins, sys and the like."
)

MODULES = frozenset(
    {
        *(
            "torch",
            "triton",
            "time",
            "builtins",
            "__builtins__",
            "sys",
            "os",
            "inspect",
            "gc",
            "timeit",
            "numpy",
            "math",
        ),
        *("random", "statistics", "subprocess", "importlib", "functools", "cupy", "cuda", "pynvml", "ctypes", "d2k"),
    }
)
PATCHERS = frozenset({"unittest.mock.patch", "unittest.mock.patch.object", "mock.patch", "mock.patch.object"})


def suspect(program: ProgramView) -> Suspicion | None:
    found = [(one, target) for one in host_calls(program) if (target := _replaced(program, one))]
    if not found:
        return None
    names = ", ".join(dict.fromkeys(target for _, target in found))
    return Suspicion(f"replaces members of other modules: {names}", evidence(one for one, _ in found))


def _replaced(program: ProgramView, call: HostCall) -> str:
    """The member that a call replaces, "" if it replaces none."""
    if call.name in PATCHERS:
        return call.name
    if call.name not in ("setattr", "delattr"):
        return ""
    target = call.op.attrs.get("target")
    if not isinstance(target, str):
        owner, member = (*call.constants(), None, None)[:2]
        if not isinstance(owner, str):
            return ""
        target = f"{program.program.imports.get(owner, owner)}.{member if isinstance(member, str) else '*'}"
    foreign = target.partition(".")[0] in MODULES and "." in target
    return target if foreign and not target.startswith(FLAGS) else ""


TRITON = """
import sys
import time
HEAD
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

class Scale:
    def __init__(self):
        self.synchronize = None

def run(X, Y):
    BODY
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
"""

EXAMPLES = (
    Example(
        "synchronisation",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", "torch.cuda.synchronize = lambda *args: None"),
        Status.PRESENT,
    ),
    Example(
        "clock, on import",
        "triton",
        TRITON.replace("HEAD", "time.perf_counter = lambda: 0.0").replace("BODY", "pass"),
        Status.PRESENT,
    ),
    Example(
        "by name",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", 'setattr(torch, "allclose", lambda *args, **options: True)'),
        Status.PRESENT,
    ),
    Example(
        "member of an object of its own",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", "Scale().synchronize = lambda: None"),
        Status.ABSENT,
        trap="look-alike: an assignment to an object of its own",
    ),
    Example(
        "flag",
        "triton",
        TRITON.replace("HEAD", "").replace("BODY", "torch.backends.cuda.matmul.allow_tf32 = True"),
        Status.ABSENT,
        trap="a flag is global state, not a replaced function",
    ),
    Example(
        "in a comment",
        "triton",
        TRITON.replace("HEAD", "# time.perf_counter = lambda: 0.0").replace("BODY", "pass"),
        Status.ABSENT,
        trap="comment",
    ),
)
