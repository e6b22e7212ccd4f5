"""Host code: what launches, allocates, prepares and calls; and which kernels run."""

from __future__ import annotations

import pytest
from triton_facts import find, form, function, kernel, one, program

from d2k.analyzers.core.fold import fold
from d2k.spec.facts import Kind, Reach

K = """
@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)
"""

GRIDS = {
    "tuple": ("", "(triton.cdiv(n, 128),)"),
    "variable": ("grid = (triton.cdiv(n, 128),)", "grid"),
    "lambda": ("grid = lambda meta: (triton.cdiv(n, meta['BLOCK']),)", "grid"),
    "function": ("def grid(META):\n        return (triton.cdiv(n, META['BLOCK']),)", "grid"),
    "arithmetic": ("", "((n + 128 - 1) // 128,)"),
}


@pytest.mark.parametrize("form_of_grid", sorted(GRIDS))
def test_grids(form_of_grid: str) -> None:
    setup, grid = GRIDS[form_of_grid]
    code = f"""
{K}
def run(x):
    n = x.numel()
    y = torch.empty_like(x)
    {setup or "pass"}
    k[{grid}](x, y, n, BLOCK=128)
    return y
"""
    found = function(code, "run").body
    launch = one(found, Kind.LAUNCH)
    assert launch.name == "k"
    assert launch.attrs["grid"] == 1
    assert launch.attrs["params"] == ("x", "y", "n", "BLOCK")
    assert form(found, launch.args[0]) == "floordiv(sub(add(numel(x), 128), 1), 128)"
    assert found.ops[launch.args[2]].kind is Kind.HOST_ALLOC
    assert kernel(code).variants[0].sites == (("run", find(found, Kind.LAUNCH)[0]),)


def test_grid_of_an_autotuned_kernel_folds_with_its_constants() -> None:
    code = f"""
@triton.autotune([triton.Config({{"BLOCK": 64}}), triton.Config({{"BLOCK": 256}})], key=[])
{K.strip()}

def run(x, y):
    k[lambda m: (1024 // m["BLOCK"],)](x, y, 1024)
"""
    found = function(code, "run").body
    size = one(found, Kind.LAUNCH).args[0]
    variants = kernel(code).variants
    assert [fold(found, size, dict(one.constants)) for one in variants] == [16, 4]


WRAPPERS = {
    "own function": """
def go(kk, *args, **kw):
    kk[(4,)](*args, **kw)

def run(x, y):
    go(k, x, y, 7, BLOCK=32)""",
    "class": """
class Op:
    def __init__(self):
        self.block = 32

    def __call__(self, x, y):
        k[(4,)](x, y, 7, BLOCK=self.block)

def run(x, y):
    return Op()(x, y)""",
    "method": """
class Op:
    BLOCK = 32
    def forward(self, x, y):
        self._go(x, y)
    def _go(self, x, y):
        k[(4,)](x, y, 7, BLOCK=self.BLOCK)""",
    "autograd": """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        k[(4,)](x, y, 7, BLOCK=32)
        return y
    @staticmethod
    def backward(ctx, g):
        return g, None

def run(x, y):
    return F.apply(x, y)""",
    "partial": """
import functools
def run(x, y):
    f = functools.partial(go, block=32)
    f(x, y)

def go(x, y, block):
    k[(4,)](x, y, 7, BLOCK=block)""",
    "run": "def run(x, y):\n    k.run(x, y, 7, BLOCK=32, grid=(4,), warmup=False)",
    "wrap_triton": """
from torch.library import triton_op, wrap_triton
@triton_op("lib::run", mutates_args={})
def run(x, y):
    wrap_triton(k)[(4,)](x, y, 7, BLOCK=32)""",
    "torch.ops": """
@torch.library.custom_op("lib::go", mutates_args=())
def _go(x, y):
    k[(4,)](x, y, 7, BLOCK=32)

def run(x, y):
    torch.ops.lib.go(x, y)""",
    "keywords": "def run(x, y):\n    kw = dict(n=7, BLOCK=32)\n    k[(4,)](x, y, **kw)",
    "conditional": """
def run(x, y):
    f = k if x.is_cuda else other
    f[(4,)](x, y, 7, BLOCK=32)

@triton.jit
def other(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, 1)""",
    "table": "KERNELS = {16: k, 32: k}\ndef run(x, y):\n    KERNELS[x.shape[0]][(4,)](x, y, 7, BLOCK=32)",
    "graph": """
def run(x, y):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        k[(4,)](x, y, 7, BLOCK=32)
    g.replay()""",
    "stream": "def run(x, y):\n    with torch.cuda.device(x.device):\n        k[(4,)](x, y, 7, BLOCK=32)",
    "nested": "def make():\n    def inner(x, y):\n        k[(4,)](x, y, 7, BLOCK=32)\n    return inner",
    "loop": "def run(x, y):\n    for i in range(3):\n        k[(4,)](x, y, 7, BLOCK=32)",
    "module level": "k[(4,)](torch.empty(3), torch.empty(3), 7, BLOCK=32)",
}


WRAPPERS |= {
    "callback": "from elsewhere import graphed\ndef run(x, y):\n    return graphed(_go, (x, y))\n"
    "def _go(x, y):\n    k[(4,)](x, y, 7, BLOCK=32)",
    "library": "lib = torch.library.Library('ns', 'DEF')\ndef _go(x, y):\n    k[(4,)](x, y, 7, BLOCK=32)\n"
    "lib.impl('go', _go, 'CUDA')\ndef run(x, y):\n    torch.ops.ns.go.default(x, y)",
    "held": "def run(x, y):\n    launch = k[(4,)]\n    launch(x, y, 7, BLOCK=32)",
    "settings": "def settings(n):\n    return {'BLOCK': 32, 'n': 7}\ndef run(x, y):\n    k[(4,)](x, y, **settings(3))",
}


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_launches_are_found_through(wrapper: str) -> None:
    found = kernel(f"{K}\n{WRAPPERS[wrapper]}\n", "k")
    assert found.reach is Reach.LAUNCHED
    assert [dict(one.constants) for one in found.variants] == [{"n": 7, "BLOCK": 32}]


def test_warmup_gives_constants_too() -> None:
    code = K + "\ndef run(x, y):\n    k.warmup(x, y, 7, BLOCK=32, grid=(4,))\n"
    assert kernel(code).variants[0].constants["BLOCK"] == 32


def test_allocations_calls_and_attributes() -> None:
    found = function(
        K
        + """
import torch.nn.functional as F

def run(x, w):
    M, K = x.shape
    out = torch.zeros(M, w.size(1), dtype=torch.bfloat16, device=x.device)
    tmp = x.new_empty((M, K))
    y = F.gelu(x @ w)
    z = torch.nn.functional.linear(y, weight=w.contiguous())
    torch.backends.cuda.matmul.allow_tf32 = True
    return z
""",
        "run",
    ).body
    zeros, empty = (found.ops[at] for at in find(found, Kind.HOST_ALLOC))
    assert (zeros.name, zeros.dtype, zeros.attrs["callee"]) == ("zeros", "bf16", "torch.zeros")
    assert [form(found, arg) for arg in zeros.args] == ["item0(shape(x))", "item1(shape(w))"]
    assert empty.name == "empty"
    names = [found.ops[at].name for at in find(found, Kind.HOST_CALL)]
    assert names == [
        "torch.matmul",
        "torch.nn.functional.gelu",
        ".contiguous",
        "torch.nn.functional.linear",
        "setattr",
    ]
    linear = one(found, Kind.HOST_CALL, "torch.nn.functional.linear")
    assert linear.attrs["keywords"] == ("weight",)
    assert one(found, Kind.HOST_CALL, "setattr").attrs["target"] == "torch.backends.cuda.matmul.allow_tf32"


def test_persistent_grids_name_the_property_of_the_device() -> None:
    for query in (
        "torch.cuda.get_device_properties('cuda').multi_processor_count",
        "triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count']",
        "NUM_SMS",
        "sms()",
    ):
        code = f"""
{K}
NUM_SMS = torch.cuda.get_device_properties(0).multi_processor_count

def sms():
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

def run(x, y):
    k[(min({query}, 900),)](x, y, 7, BLOCK=32)
"""
        found = function(code, "run").body
        size = found.ops[one(found, Kind.LAUNCH).args[0]]
        assert size.name == "min"
        assert found.ops[size.args[0]].name in ("multi_processor_count", "multiprocessor_count")


def test_branches_by_shape_guard_their_launches() -> None:
    code = (
        K.replace("def k(", "def a(")
        + K.replace("def k(", "def b(")
        + """
def run(x, y):
    if x.shape[0] > 64:
        a[(1,)](x, y, 1, 16)
    else:
        b[(1,)](x, y, 1, 16)
"""
    )
    found = function(code, "run").body
    first, second = (found.ops[at] for at in find(found, Kind.LAUNCH))
    assert (first.name, second.name) == ("a", "b")
    assert [guard.expected for guard in (*first.guards, *second.guards)] == [True, False]
    assert first.guards[0].value == second.guards[0].value


def test_handlers_are_fallbacks() -> None:
    found = function(
        K
        + """

def run(x, y):
    try:
        k[(1,)](x, y, 1, 16)
    except RuntimeError:
        return torch.clone(x)
""",
        "run",
    ).body
    assert len(find(found, Kind.LAUNCH)) == 1
    assert find(found, Kind.HOST_CALL, "torch.clone") == []
    (mention,) = found.mentions
    assert (mention.name, mention.reason) == ("torch.clone", "fallback_path")


def test_fields_of_modules_name_what_they_were_made_of() -> None:
    found = function(
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)
""",
        "Net.forward",
    ).body
    call = one(found, Kind.HOST_CALL)
    assert (call.name, call.attrs["callee"]) == ("self.linear", "torch.nn.Linear")


REACH = (
    K
    + K.replace("def k(", "def spare(")
    + """
def run(x, y):
    k[(1,)](x, y, 1, 16)

def other(x, y):
    spare[(1,)](x, y, 1, 16)

def test_other(x, y):
    other(x, y)

if __name__ == "__main__":
    spare[(1,)](None, None, 1, 16)
"""
)


def reaches(code: str, entry: str = "") -> dict[str, Reach]:
    return {one.name: one.reach for one in program(code, entry).kernels}


def test_without_an_entry_every_public_function_runs() -> None:
    assert reaches(REACH) == {"k": Reach.LAUNCHED, "spare": Reach.LAUNCHED}


def test_an_entry_reaches_only_what_it_calls() -> None:
    assert reaches(REACH, "run") == {"k": Reach.LAUNCHED, "spare": Reach.DEAD}
    flags = {one.name: one.reachable for one in program(REACH, "run").functions}
    assert flags["run"] is True
    assert flags["other"] is False


def test_an_entry_that_is_not_there_is_a_problem() -> None:
    found = program(REACH, "nothing")
    (problem,) = found.problems
    assert "nothing" in problem.text
    assert "run" in problem.text
    assert all(one.reach is not Reach.LAUNCHED for one in found.kernels)


def test_a_kernel_that_nothing_launches_beside_launches_is_dead() -> None:
    code = K + K.replace("def k(", "def decoy(") + "\ndef run(x, y):\n    k[(1,)](x, y, 1, 16)\n"
    assert reaches(code) == {"k": Reach.LAUNCHED, "decoy": Reach.DEAD}
    mentions = {(one.name, one.reason) for one in program(code).mentions}
    assert ("triton.language.load", "dead_code") in mentions


def test_a_library_of_kernels_is_exported() -> None:
    assert reaches(K + K.replace("def k(", "def more(")) == {"k": Reach.EXPORTED, "more": Reach.EXPORTED}


def test_a_kernel_that_host_code_hands_on_is_exported() -> None:
    code = (
        K
        + K.replace("def k(", "def more(")
        + """
from elsewhere import launcher

def run(x, y):
    k[(1,)](x, y, 1, 16)
    launcher(more, x)
"""
    )
    assert reaches(code)["more"] is Reach.EXPORTED


def test_only_tests_launch_it() -> None:
    code = (
        K
        + K.replace("def k(", "def trial(")
        + """
def run(x, y):
    k[(1,)](x, y, 1, 16)

def test_trial(x, y):
    trial[(1,)](x, y, 1, 16)
"""
    )
    assert reaches(code)["trial"] is Reach.DEAD


def test_a_helper_that_no_kernel_calls_is_a_mention() -> None:
    code = (
        K
        + """
@triton.jit
def unused(x):
    return tl.dot(x, x)

def run(x, y):
    k[(1,)](x, y, 1, 16)
"""
    )
    found = program(code)
    assert [one.name for one in found.kernels] == ["k"]
    (mention,) = found.mentions
    assert (mention.name, mention.reason, mention.detail) == ("triton.language.dot", "helper_not_called", "unused")


def test_helpers_of_host_code_stand_in_their_callers() -> None:
    code = (
        K
        + """
def _launch(x, y, block):
    k[(1,)](x, y, 1, block)

def run(x, y):
    _launch(x, y, 64)
"""
    )
    found = program(code)
    assert [one.name for one in found.functions] == ["run"]
    launch = one(found.functions[0].body, Kind.LAUNCH)
    assert len(launch.calls) == 1
    assert found.kernels[0].variants[0].constants["BLOCK"] == 64


DTYPES = {
    "allocation": "w = torch.empty(64, dtype=torch.bfloat16)",
    "cast": "w = x.to(torch.bfloat16).contiguous()",
    "method": "w = x.view(-1).bfloat16()",
    "assertion": "w = x\n    assert x.is_contiguous() and x.dtype == torch.bfloat16",
    "chain": "w = x\n    assert y.dtype == x.dtype == torch.bfloat16",
    "transposed": "w = torch.zeros((4, 4), dtype=torch.bfloat16).T",
}


@pytest.mark.parametrize("source", sorted(DTYPES))
def test_element_types_that_host_code_says_reach_the_kernel(source: str) -> None:
    code = f"""
@triton.jit
def k(w, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(w + i + tl.program_id(0) * B)
    if w.dtype.element_ty == tl.bfloat16:
        v = v * 2
    tl.store(y + i, v)

def run(x, y):
    {DTYPES[source]}
    k[(1,)](w, y, 16)
"""
    found = kernel(code)
    lowered = found.variants[0].body
    assert one(lowered, Kind.LOAD).dtype == "bf16"
    assert next(param for param in found.params if param.name == "w").dtype == "bf16"
    assert len([at for at in find(lowered, Kind.ELEMENTWISE, "mul") if lowered.ops[at].dtype == "bf16"]) == 1


def test_constants_that_forward_leaves_for_backward() -> None:
    code = (
        K
        + """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, causal=True):
        ctx.block = 2 * 32
        ctx.causal = causal
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        k[(1,)](g, g, 1, ctx.block if ctx.causal else 16)
        return g, None

def run(x):
    return F.apply(x)
"""
    )
    found = kernel(code)
    assert found.reach is Reach.LAUNCHED
    assert {one.constants["BLOCK"] for one in found.variants} == {64, 16}


def test_a_class_is_an_entry_by_its_name() -> None:
    code = (
        K
        + """
class Model(torch.nn.Module):
    def forward(self, x, y):
        k[(1,)](x, y, 1, 16)

class Other:
    def forward(self, x, y):
        pass
"""
    )
    assert reaches(code, "Model") == {"k": Reach.LAUNCHED}
    assert reaches(code, "Model.forward") == {"k": Reach.LAUNCHED}
    assert reaches(code, "Other") == {"k": Reach.DEAD}


def test_arguments_behind_an_unknown_star_belong_to_no_parameter() -> None:
    found = kernel(K + "\ndef run(x, *rest, **more):\n    k[(1,)](x, *rest, 5, BLOCK=32, **more)\n")
    (variant,) = found.variants
    assert dict(variant.constants) == {"BLOCK": 32}
    launch = one(function(K + "\ndef run(x, *rest):\n    k[(1,)](x, *rest, 5, BLOCK=32)\n", "run").body, Kind.LAUNCH)
    assert launch.attrs["params"] == ("x", "BLOCK", "*", "*")
