"""Results that are kept and handed out again without computing them."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import BodyView, ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.host_calls import HostCall, dotted, evidence
from d2k.analyzers.patterns.hosts import short
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Status

DEFINITION = (
    "A path that launches nothing is taken when an input is known by identity, address, version or content, or when a "
    "result of a launch was kept. Caches of prepared constants, workspaces and compiled code launch all the same."
)

KEYS = frozenset(
    {"data_ptr", "_version", "id", "hash", "sha256", "md5", "crc32", "equal", "untyped_storage", "tobytes"}
)
"""What knows an input again."""

LOOKUPS = frozenset({"in", "get", "getattr", "hasattr", "find", "count", "contains", "setdefault"})
KEEPS = frozenset({"setitem", "setattr"})
COPIES = frozenset({"clone", "detach", "copy", "to", "contiguous", "view", "reshape"})
MAX_COPIES = 4
MEMO = "functools.lru_cache"


def suspect(program: ProgramView) -> Suspicion | None:
    for host, view in program.live_hosts.items():
        launches = view.values(Kind.LAUNCH)
        if not launches:
            continue
        for memo in view.values(Kind.HOST_CALL, name=MEMO):
            inside = [launch for launch in launches if _stands_in(view, launch, memo)]
            if inside:
                calls = [HostCall(host, view, at, dotted(view.op(at))) for at in (memo, inside[0])]
                return Suspicion("remembers the results of a function that launches (lru_cache)", evidence(calls))
        for condition in _skipping(view, launches):
            known = _keys(view, condition)
            kept = _kept(program, view, launches)
            if known or (kept and _looks_up(view, condition)) or _remembers(view, condition, kept):
                seen = [at for at in (*known, *kept) if at != condition] or [condition]
                calls = [HostCall(host, view, at, dotted(view.op(at))) for at in (*seen, launches[0])]
                how = ", ".join(dict.fromkeys(short(dotted(view.op(at))) for at in known)) or "a kept result"
                return Suspicion(f"launches nothing if an input is known again ({how})", evidence(calls))
    return None


def _stands_in(view: BodyView, launch: int, memo: int) -> bool:
    """The launch, or a call on the way to it, is written inside the function whose results are remembered."""
    span = view.op(memo).place
    op = view.op(launch)
    return any(one.path == span.path and span.line <= one.line <= span.end_line for one in (op.place, *op.calls))


def _skipping(view: BodyView, launches: tuple[int, ...]) -> Iterator[int]:
    """Conditions of which one outcome has all the launches and the other has none."""
    shared = [{(guard.value, guard.expected) for guard in view.op(launch).guards} for launch in launches]
    for value, _ in sorted(set.intersection(*shared)):
        yield value


def _keys(view: BodyView, condition: int) -> tuple[int, ...]:
    """Identities, addresses, versions and digests of inputs that the condition depends on."""
    found = []
    for at in sorted(view.slice(condition)):
        op = view.op(at)
        if op.kind in (Kind.ATTRIBUTE, Kind.HOST_CALL, Kind.CALL) and short(dotted(op)) in KEYS:
            found.append(at)
    # an address alone is also asked for its alignment
    compared = any(_is_alignment(view, at) for at in view.slice(condition))
    return () if compared else tuple(found)


def _is_alignment(view: BodyView, value: int) -> bool:
    op = view.op(value)
    return (
        op.kind is Kind.ELEMENTWISE
        and op.name in ("mod", "and")
        and any(view.op(arg).name == "data_ptr" for arg in op.args if arg != NONE)
    )


def _looks_up(view: BodyView, condition: int) -> bool:
    return any(
        view.op(at).kind in (Kind.HOST_CALL, Kind.CALL) and short(dotted(view.op(at))) in LOOKUPS
        for at in view.slice(condition)
    )


def _kept(program: ProgramView, view: BodyView, launches: tuple[int, ...]) -> tuple[int, ...]:
    """Assignments that keep an array that a launch wrote, or a copy of it, beyond the call."""
    results = {at for launch in launches for at in _written(program, view, launch)}
    found = []
    for value in view.values(Kind.HOST_CALL, name=tuple(KEEPS)):
        kept = view.op(value).args[-1] if view.op(value).args else NONE
        for _ in range(MAX_COPIES):
            if kept == NONE or kept in results or short(dotted(view.op(kept))) not in COPIES:
                break
            kept = view.op(kept).args[0] if view.op(kept).args else NONE
        if kept in results:
            found.append(value)
    return tuple(found)


def _written(program: ProgramView, view: BodyView, launch: int) -> Iterator[int]:
    """Arguments of a launch that the kernel stores to; all arrays if the kernel is not known."""
    op = view.op(launch)
    names = op.attrs.get("params")
    first = op.attrs.get("grid", 0)
    kernels = [kernel for kernel in program.kernels if kernel.kernel.name == short(op.name)]
    for kernel in kernels[:1]:
        data = flow(kernel)
        stored = {kernel.op(root).name for output in data.outputs() for root in data.memory(kernel.op(output).args[0])}
        if isinstance(names, tuple) and isinstance(first, int):
            for at, name in enumerate(names):
                if name in stored and first + at < len(op.args):
                    yield op.args[first + at]
    if not kernels:
        yield from (arg for arg in op.args if arg != NONE and view.op(arg).kind is Kind.HOST_ALLOC)


def _remembers(view: BodyView, condition: int, kept: tuple[int, ...]) -> bool:
    """`if self.last is x: return self.out`: the compared input and a result are both kept."""
    inputs = {at for at in view.op(condition).args if at != NONE and view.op(at).kind is Kind.PARAM}
    stored = {view.op(value).args[-1] for value in view.values(Kind.HOST_CALL, name="setattr") if view.op(value).args}
    results = {value for value in kept if view.op(view.op(value).args[-1]).kind is Kind.HOST_ALLOC}
    return view.op(condition).name == "eq" and bool(inputs & stored) and bool(results)


TRITON = """
CACHE = {}
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, W, Y):
BEFORE
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
AFTER
    return Y
"""
BY_ADDRESS = """
    key = (X.data_ptr(), X._version)
    if key in CACHE:
        Y.copy_(CACHE[key])
        return Y
"""
WEIGHTS = """
    key = W.data_ptr()
    if key not in CACHE:
        CACHE[key] = W.t().contiguous()
    W = CACHE[key]
"""
ALIGNED = """
    if X.data_ptr() % 16 != 0:
        X = X.clone()
"""
OBJECT = """
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

class Scale:
    def __init__(self):
        self.last = None
        self.out = None

    def __call__(self, x):
        if CONDITION:
            return self.out
        self.out = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 1024),)](x, self.out, x.numel(), B=1024)
        self.last = x
        return self.out
"""
WORKSPACE = """
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

SPACE = {}

def run(x):
    key = (tuple(x.shape), x.device)
    if key not in SPACE:
        SPACE[key] = torch.empty_like(x)
    out = SPACE[key]
    scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), B=1024)
    return out
"""

MEMOIZED = """
import functools
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

@functools.lru_cache(maxsize=1)
def size(n):
    return 1024 if n > 4096 else 256

def launch(x):
    out = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), B=size(x.numel()))
    return out

DECORATOR
def run(x):
    return launch(x)
"""
GLOBALS = """
LAST = None
RESULT = None
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(x):
    global LAST, RESULT
    if x is LAST:
        return RESULT
    out = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), B=1024)
    LAST, RESULT = x, out
    return out
"""

EXAMPLES = (
    Example(
        "results remembered", "triton", MEMOIZED.replace("DECORATOR", "@functools.lru_cache(maxsize=1)"), Status.PRESENT
    ),
    Example("last input in globals", "triton", GLOBALS, Status.PRESENT),
    Example(
        "sizes remembered",
        "triton",
        MEMOIZED.replace("DECORATOR", ""),
        Status.ABSENT,
        trap="a remembered choice of sizes: every call launches",
    ),
    Example(
        "address and version",
        "triton",
        TRITON.replace("BEFORE", BY_ADDRESS).replace("AFTER", "    CACHE[key] = Y.clone()"),
        Status.PRESENT,
    ),
    Example("last input", "triton", OBJECT.replace("CONDITION", "self.last is x"), Status.PRESENT),
    Example(
        "prepared weights",
        "triton",
        TRITON.replace("BEFORE", WEIGHTS).replace("AFTER", ""),
        Status.ABSENT,
        trap="a cache of prepared weights: every call launches",
    ),
    Example("workspace", "triton", WORKSPACE, Status.ABSENT, trap="a buffer that is kept for each shape"),
    Example(
        "alignment",
        "triton",
        TRITON.replace("BEFORE", ALIGNED).replace("AFTER", ""),
        Status.ABSENT,
        trap="an address that is only asked for its alignment",
    ),
    Example(
        "empty input",
        "triton",
        TRITON.replace("BEFORE", "    if X.numel() == 0:\n        return Y").replace("AFTER", ""),
        Status.ABSENT,
        trap="dispatch on shape",
    ),
)
