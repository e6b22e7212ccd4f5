"""Kernel bodies: what statements and tile functions are lowered to."""

from __future__ import annotations

import pytest
from triton_facts import body, dims, find, form, kernel, one

from d2k.spec.facts import NONE, Kind, Reach

ADD = """
@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, x + 1, mask=mask)
"""


def test_loads_and_stores_keep_address_mask_and_value() -> None:
    lowered = body(ADD)
    load, store = one(lowered, Kind.LOAD), one(lowered, Kind.STORE)
    assert form(lowered, load.args[0]) == "add(x_ptr, add(mul(pid0, BLOCK), arange(0, BLOCK)))"
    assert form(lowered, load.args[1]) == "lt(add(mul(pid0, BLOCK), arange(0, BLOCK)), n)"
    assert form(lowered, load.args[2]) == "0.0"
    assert (load.attrs["space"], load.attrs["via"]) == ("global", "pointer")
    assert lowered.ops[store.args[1]].name == "add"
    assert store.args[2] == load.args[1]


def test_pointers_are_the_parameters_that_addresses_start_from() -> None:
    params = {param.name: param for param in kernel(ADD).params}
    assert params["x_ptr"].pointer is True
    assert params["y_ptr"].pointer is True
    assert params["n"].pointer is not True
    assert params["BLOCK"].pointer is False
    assert params["BLOCK"].constexpr


def test_offset_first_addresses_name_the_pointer_too() -> None:
    found = kernel("""
    @triton.jit
    def k(p, q, stride, n):
        row = tl.program_id(0) * stride
        v = tl.load(tl.arange(0, 16) + row + p)
        base = q + row
        tl.store(base + tl.arange(0, 16), v)
    """)
    assert {param.name for param in found.params if param.pointer} == {"p", "q"}


def test_tile_shapes_follow_arange_axes_and_broadcast() -> None:
    lowered = body("""
    @triton.jit
    def k(p, M: tl.constexpr, N: tl.constexpr):
        x = tl.load(p + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
        s = tl.sum(x, axis=1)
        t = tl.max(x, axis=0, keep_dims=True)
        u = tl.trans(x)
        v = tl.reshape(x, (M * N,))
        tl.store(p, s + 0 * tl.sum(t) + tl.sum(u) + tl.sum(v))
    """)
    sizes = {"M": 16, "N": 32}
    shapes = {op.variable: dims(lowered, at, sizes) for at, op in enumerate(lowered.ops) if op.variable}
    assert shapes["x"] == (16, 32)
    assert shapes["s"] == (16,)
    assert shapes["t"] == (1, 32)
    assert shapes["u"] == (32, 16)
    assert shapes["v"] == (512,)


LOOP = """
@triton.jit
def k(a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MODE: tl.constexpr = 0):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    scale = 1.0
    unused = 0
    for k in tl.range(0, K, BK, num_stages=3, warp_specialize=True, loop_unroll_factor=2, flatten=False):
        a = tl.load(a_ptr + tl.arange(0, BM)[:, None] * K + tl.arange(0, BK)[None, :])
        b = tl.load(b_ptr + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])
        acc += tl.dot(a, b)
        a_ptr += BK
        if MODE == 1:
            unused += 1
    tl.store(c_ptr + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc.to(tl.bfloat16) * scale)
"""


def test_loops_carry_what_they_change_and_nothing_else() -> None:
    lowered = body(LOOP)
    (loop,) = lowered.loops
    assert loop.form == "for"
    assert [form(lowered, value) for value in (loop.start, loop.stop, loop.step)] == ["0", "K", "BK"]
    assert dict(loop.attrs) == {"num_stages": 3, "warp_specialize": True, "unroll": 2, "flatten": False}
    carried = {one.variable: one for one in loop.carried}
    assert set(carried) == {"acc", "a_ptr"}
    acc = carried["acc"]
    assert lowered.ops[acc.before].kind is Kind.FULL
    assert lowered.ops[acc.phi].args == (acc.before, acc.next)
    assert lowered.ops[acc.next].name == "add"
    # after the loop the variable is its phi
    cast = one(lowered, Kind.CAST)
    assert cast.args == (acc.phi,)
    assert cast.dtype == "bf16"
    assert cast.loop == NONE


def test_loop_variable_starts_and_steps() -> None:
    lowered = body(LOOP)
    variable = lowered.ops[lowered.loops[0].variable]
    assert variable.kind is Kind.PHI
    assert form(lowered, variable.args[0]) == "0"
    assert form(lowered, variable.args[1]) == "add(phi:k, BK)"


def test_dot_has_operands_accumulator_and_shape() -> None:
    lowered = body(LOOP)
    dot = one(lowered, Kind.MMA)
    assert dot.args[2] == NONE
    assert dot.attrs["instr"] == "any"
    assert dot.dtype == "f32"
    at = find(lowered, Kind.MMA)[0]
    assert dims(lowered, at, {"BM": 64, "BN": 128, "BK": 32}) == (64, 128)


def test_dot_with_accumulator_argument() -> None:
    lowered = body("""
    @triton.jit
    def k(p, B: tl.constexpr):
        i = tl.arange(0, B)
        t = tl.load(p + i[:, None] * B + i[None, :])
        acc = tl.zeros([B, B], tl.float32)
        for _ in range(4):
            acc = tl.dot(t, t.T, acc, input_precision="tf32x3")
        tl.store(p + i[:, None] * B + i[None, :], acc)
    """)
    dot = one(lowered, Kind.MMA)
    assert lowered.ops[dot.args[2]].kind is Kind.PHI
    assert lowered.ops[dot.args[1]].name == "trans"
    assert dot.attrs["input_precision"] == "tf32x3"


def test_constexpr_branch_that_is_off_is_a_mention() -> None:
    lowered = body(LOOP)
    assert not any(op.variable == "unused" and op.kind is Kind.ELEMENTWISE for op in lowered.ops)
    lowered = body("""
    @triton.jit
    def k(p, FAST: tl.constexpr = False):
        if FAST:
            tl.debug_barrier()
        tl.store(p, 1)
    """)
    assert find(lowered, Kind.BARRIER) == []
    (mention,) = lowered.mentions
    assert (mention.name, mention.reason) == ("triton.language.debug_barrier", "disabled_branch")
    assert "FAST" in mention.detail


def test_run_time_branch_guards_and_merges() -> None:
    lowered = body("""
    @triton.jit
    def k(p, n):
        x = tl.load(p)
        if n > 4:
            x = x + 1
        else:
            tl.store(p + 1, x)
        tl.store(p, x)
    """)
    inner, last = (lowered.ops[at] for at in find(lowered, Kind.STORE))
    assert [guard.expected for guard in inner.guards] == [False]
    assert last.guards == ()
    phi = lowered.ops[last.args[1]]
    assert (phi.kind, phi.name) == (Kind.PHI, "if")
    assert form(lowered, phi.args[0]) == "gt(n, 4)"
    assert lowered.ops[phi.args[1]].name == "add"
    assert lowered.ops[phi.args[2]].kind is Kind.LOAD


def test_what_follows_an_early_return_is_guarded() -> None:
    lowered = body("""
    @triton.jit
    def k(p, n):
        pid = tl.program_id(0)
        if pid >= n:
            return
        tl.store(p, 1)
    """)
    store = one(lowered, Kind.STORE)
    (guard,) = store.guards
    assert (form(lowered, guard.value), guard.expected) == ("ge(pid0, n)", False)


def test_nested_early_return_is_guarded_by_both_conditions() -> None:
    lowered = body("""
    @triton.jit
    def k(p, n, m):
        if n > 1:
            if m > 2:
                return
        tl.store(p, 1)
    """)
    (guard,) = one(lowered, Kind.STORE).guards
    assert (form(lowered, guard.value), guard.expected) == ("and(gt(n, 1), gt(m, 2))", False)


HELPERS = """
@triton.jit
def scale(x, by: tl.constexpr = 2):
    if by == 2:
        return x * by
    return x

@triton.jit
def pair(x):
    return x, scale(x)

@triton.jit
def k(p, F: tl.constexpr):
    a, b = pair(tl.load(p))
    tl.store(p, F(a, b))

@triton.jit
def plus(a, b):
    return a + b

def run(x):
    k[(1,)](x, F=plus)
"""


def test_helpers_are_inlined_with_their_call_sites() -> None:
    found = kernel(HELPERS, "k")
    lowered = found.variants[0].body
    store = one(lowered, Kind.STORE)
    assert form(lowered, store.args[1]) == "add(load(p, -), mul(load(p, -), 2))"
    product = one(lowered, Kind.ELEMENTWISE, "mul")
    assert [place.line for place in product.calls] == [17, 13]
    assert product.place.line == 8
    assert lowered.unresolved == ()


def test_helpers_are_no_kernels() -> None:
    from triton_facts import program

    assert [(one.name, one.reach) for one in program(HELPERS).kernels] == [("k", Reach.LAUNCHED)]


def test_returns_under_conditions_merge() -> None:
    lowered = body(
        """
    @triton.jit
    def pick(x, n):
        if n > 0:
            return x + 1
        return x - 1

    @triton.jit
    def k(p, n):
        tl.store(p, pick(tl.load(p), n))
    """,
        "k",
    )
    store = one(lowered, Kind.STORE)
    assert form(lowered, store.args[1]) == "if(gt(n, 0), add(load(p, -), 1), sub(load(p, -), 1))"


def test_unknown_callee_is_unresolved() -> None:
    lowered = body("""
    from elsewhere import mystery

    @triton.jit
    def k(p):
        tl.store(p, mystery(tl.load(p)))
    """)
    (mention,) = lowered.unresolved
    assert mention.name == "elsewhere.mystery"
    assert one(lowered, Kind.CALL).name == "elsewhere.mystery"


@pytest.mark.parametrize(
    ("header", "call"),
    [
        ("import triton.language as lang", "lang.exp2"),
        ("from triton.language import exp2", "exp2"),
        ("from triton import language as L", "L.math.exp2"),
        ("import triton", "triton.language.exp2"),
        ("from triton.language.math import exp2 as power", "power"),
        ("from triton.language.extra.cuda import libdevice", "libdevice.exp2"),
        ("from triton.language import *", "exp2"),
        ("try:\n    from triton.language.extra.libdevice import exp2\nexcept ImportError:\n    exp2 = None", "exp2"),
    ],
)
def test_aliases(header: str, call: str) -> None:
    from d2k.analyzers.triton.frontend import read

    code = f"""
import triton
import triton.language as tl
{header}
@triton.jit
def k(p):
    tl.store(p, {call}(tl.load(p)))
"""
    lowered = read("k.py", code).kernels[0].variants[0].body
    assert one(lowered, Kind.ELEMENTWISE).name == "exp2"
    assert lowered.unresolved == ()


def test_a_local_name_hides_the_module() -> None:
    lowered = body("""
    exp2 = tl.exp2

    @triton.jit
    def k(p, exp2):
        tl.store(p, exp2 + 1)
    """)
    assert find(lowered, Kind.ELEMENTWISE, "exp2") == []


@pytest.mark.parametrize(
    ("combine", "word"),
    [
        ("(a1, x1, a2, x2)|a1 * a2, a2 * x1 + x2", "linear_recurrence"),
        ("(a1, x1, a2, x2)|a2 * a1, x2 + x1 * a2", "linear_recurrence"),
        ("(a1, x1, a2, x2)|a1 + a2, a1 * x1 + x2", ""),
        ("(f1, x1, f2, x2)|f1 | f2, tl.where(f2, x2, x1 + x2)", "segmented_sum"),
    ],
)
def test_combine_functions_are_named_by_what_they_compute(combine: str, word: str) -> None:
    params, _, result = combine.partition("|")
    lowered = body(
        f"""
    @triton.jit
    def op{params}:
        return {result}

    @triton.jit
    def k(p, q, B: tl.constexpr):
        i = tl.arange(0, B)
        a, x = tl.associative_scan((tl.load(p + i), tl.load(q + i)), 0, op)
        tl.store(q + i, x)
    """,
        "k",
    )
    scan = one(lowered, Kind.SCAN)
    assert scan.name == "associative"
    assert scan.attrs["outputs"] == 2
    assert scan.attrs.get("combine", "") == word
    store = one(lowered, Kind.STORE)
    assert lowered.ops[store.args[1]].attrs["index"] == 1


def test_descriptors_block_pointers_and_atomics() -> None:
    lowered = body("""
    @triton.jit
    def k(a, b, c, M, N, B: tl.constexpr):
        d = tl.make_tensor_descriptor(a, shape=[M, N], strides=[N, 1], block_shape=[B, B])
        x = d.load([0, B])
        q = tl.make_block_ptr(b, (M, N), (N, 1), (0, 0), (B, B), (1, 0))
        q = tl.advance(q, (0, B))
        y = tl.load(q, boundary_check=(0, 1), eviction_policy="evict_first")
        tl.atomic_add(c + tl.arange(0, B), tl.sum(x + y, 0), sem="release", scope="gpu")
        d.store([0, 0], y)
    """)
    by_descriptor, by_block = (lowered.ops[at] for at in find(lowered, Kind.LOAD))
    descriptor = one(lowered, Kind.DESCRIPTOR)
    assert descriptor.attrs["host"] is False
    assert (by_descriptor.attrs["via"], by_block.attrs["via"]) == ("descriptor", "block_pointer")
    assert by_descriptor.args[1] == NONE
    assert [form(lowered, arg) for arg in by_descriptor.args[2:]] == ["0", "B"]
    assert by_block.attrs["eviction"] == "evict_first"
    assert by_block.attrs["boundary_check"] == (0, 1)
    assert dims(lowered, find(lowered, Kind.LOAD)[0], {"B": 32}) == (32, 32)
    atomic = one(lowered, Kind.ATOMIC)
    assert (atomic.name, atomic.attrs["sem"], atomic.attrs["scope"]) == ("add", "release", "gpu")
    store = one(lowered, Kind.STORE)
    assert (store.attrs["via"], store.args[2]) == ("descriptor", NONE)


def test_inline_asm_becomes_operations() -> None:
    lowered = body('''
    @triton.jit
    def k(p):
        x = tl.load(p)
        y = tl.inline_asm_elementwise("""
            ex2.approx.ftz.f32 $0, $1;  // not cp.async
            """, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
        tl.store(p, y)
    ''')
    power = one(lowered, Kind.ELEMENTWISE, "exp2")
    assert power.attrs["fast"] is True
    assert form(lowered, one(lowered, Kind.STORE).args[1]) == "asm(exp2(load(p, -)))"
    assert find(lowered, Kind.COPY) == []


def test_while_loop_has_a_condition_inside() -> None:
    lowered = body("""
    @triton.jit
    def k(p, n):
        i = 0
        while i < n:
            tl.store(p + i, i)
            i += 1
    """)
    (loop,) = lowered.loops
    assert loop.form == "while"
    assert form(lowered, loop.condition) == "lt(phi:i, n)"
    assert [one.variable for one in loop.carried] == ["i"]


def test_tuple_assignment_rotates_values() -> None:
    lowered = body("""
    @triton.jit
    def k(p, n):
        a = tl.load(p)
        b = tl.load(p + 1)
        for i in range(n):
            a, b = b, tl.load(p + i)
        tl.store(p, a)
    """)
    carried = {one.variable: one for one in lowered.loops[0].carried}
    assert carried["a"].next == carried["b"].phi
    assert lowered.ops[carried["b"].next].kind is Kind.LOAD


def test_inline_asm_with_several_registers_and_results() -> None:
    lowered = body("""
    @triton.jit
    def k(p, q):
        a, b = tl.load(p), tl.load(q)
        lo, hi = tl.inline_asm_elementwise(
            asm='''
            {
            .reg .pred big;
            .reg .b16 pair;
            setp.gt.f32 big, $2, 0f3F800000;
            cvt.rn.satfinite.e4m3x2.f32 pair, $2, $3;
            @big shfl.sync.bfly.b32 $0, $2, 16, 31, -1;
            mov.b16 $1, pair;
            }
            ''',
            constraints="=r,=h,r,r", args=[a, b], dtype=(tl.int32, tl.int16), is_pure=False, pack=1)
        tl.store(p, lo + hi)
    """)
    convert = one(lowered, Kind.CAST)
    assert (convert.dtype, convert.attrs["packed"], convert.attrs["saturate"]) == ("f8e4m3", 2, True)
    assert [form(lowered, arg) for arg in convert.args] == ["load(p, -)", "load(q, -)"]
    shuffle = one(lowered, Kind.SHUFFLE)
    assert shuffle.name == "xor"
    assert [lowered.ops[guard.value].name for guard in shuffle.guards] == ["gt"]
    low, high = (lowered.ops[at] for at in find(lowered, Kind.ASM, "asm"))
    assert (low.dtype, high.dtype) == ("i32", "i16")
    assert lowered.ops[high.args[0]].kind is Kind.CAST


def test_atomics_say_whether_their_result_is_used() -> None:
    lowered = body("""
    @triton.jit
    def k(p, q):
        ticket = tl.atomic_add(p, 1)
        tl.atomic_max(q + ticket, 3)
    """)
    used, unused = (lowered.ops[at] for at in find(lowered, Kind.ATOMIC))
    assert (used.attrs["returns"], unused.attrs["returns"]) == (True, False)
