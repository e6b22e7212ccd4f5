"""Compile-time constants: launches, defaults, heuristics and autotune configurations joined."""

from __future__ import annotations

import pytest
from triton_facts import body, dims, find, kernel, program

from d2k.spec.facts import Kind, Reach

BODY = """
@triton.jit
def k(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = False, MODE: tl.constexpr = "plain"):
    offs = tl.arange(0, BLOCK)
    if EVEN:
        v = tl.load(x + offs)
    else:
        v = tl.load(x + offs, mask=offs < n)
    tl.store(x + offs, v)
"""


def constants(code: str, name: str = "k", entry: str = "") -> list[dict[str, object]]:
    return [dict(one.constants) for one in kernel(code, name, entry).variants]


def test_positional_keyword_and_default_arguments() -> None:
    found = kernel(BODY + "def run(x):\n    k[(1,)](x, 4096, 256, MODE='fast', num_warps=8, num_stages=1)\n")
    (variant,) = found.variants
    assert dict(variant.constants) == {"n": 4096, "BLOCK": 256, "EVEN": False, "MODE": "fast"}
    assert (variant.launch.num_warps, variant.launch.num_stages, variant.launch.threads) == (8, 1, 256)
    assert variant.chosen_by == "launch"
    assert variant.label == ""


def test_two_launches_with_other_constants_are_two_variants() -> None:
    found = kernel(BODY + "def run(x):\n    k[(1,)](x, 1, 64)\n    k[(2,)](x, 1, 128)\n    k[(3,)](x, 1, 64)\n")
    assert [one.constants["BLOCK"] for one in found.variants] == [64, 128]
    assert [len(one.sites) for one in found.variants] == [2, 1]
    assert [one.label for one in found.variants] == ["BLOCK=64", "BLOCK=128"]


def test_bodies_are_shared_unless_a_decision_differs() -> None:
    same = kernel(BODY + "def run(x):\n    k[(1,)](x, 1, 64)\n    k[(1,)](x, 1, 128)\n").variants
    assert same[0].body is same[1].body
    other = kernel(BODY + "def run(x):\n    k[(1,)](x, 1, 64)\n    k[(1,)](x, 1, 64, True)\n").variants
    assert other[0].body is not other[1].body
    assert [len(find(one.body, Kind.ELEMENTWISE, "lt")) for one in other] == [1, 0]


CONFIGS = [
    "[triton.Config({'BLOCK': b}, num_warps=w) for b in (64, 128) for w in (2, 4)]",
    "[triton.Config({'BLOCK': b}, num_warps=w) for b, w in itertools.product([64, 128], [2, 4])]",
    "list(map(lambda p: triton.Config(dict(BLOCK=p[0]), num_warps=p[1]), [(64, 2), (64, 4), (128, 2), (128, 4)]))",
    "make()",
    "HALF + [triton.Config({'BLOCK': 128}, num_warps=2), triton.Config({'BLOCK': 2 ** 7}, num_warps=4)]",
    "[c for c in make() + [triton.Config({'BLOCK': 512}, num_warps=4)] if c.kwargs['BLOCK'] <= LIMIT]",
    "list(filter(keep, make() + [triton.Config({'BLOCK': 512}, num_warps=4)]))",
    "make() if torch.version.hip is None else []",
    "[*HALF, *[triton.Config(d, num_warps=w) for d in TABLE for w in [2, 4]]]",
]


@pytest.mark.parametrize("configs", CONFIGS)
def test_configuration_lists_are_evaluated(configs: str) -> None:
    code = f"""
import itertools
LIMIT = 64 * 2
HALF = [triton.Config({{'BLOCK': 64}}, num_warps=2), triton.Config({{'BLOCK': 64}}, num_warps=4)]
TABLE = [{{"BLOCK": 128}}]

def keep(config):
    return config.kwargs["BLOCK"] != 512

def make():
    configs = []
    for block in [64, 128]:
        for warps in (2, 4):
            configs.append(triton.Config({{'BLOCK': block}}, num_warps=warps))
    return configs

@triton.autotune(configs={configs}, key=["n"])
{BODY}
def run(x, n):
    k[(1,)](x, n)
"""
    found = kernel(code.replace("\n\n@triton.jit", "\n@triton.jit", 1), "k")
    chosen = [(one.constants["BLOCK"], one.launch.num_warps) for one in found.variants]
    assert chosen == [(64, 2), (64, 4), (128, 2), (128, 4)]
    assert found.attrs["autotuned"] is True
    assert found.attrs["configs_total"] == 4
    assert {one.chosen_by for one in found.variants} == {"autotune"}
    assert len({id(one.body) for one in found.variants}) == 1


def test_other_forms_of_tuning() -> None:
    code = (
        BODY.replace("def k(", "def raw(")
        + """
tuned = triton.autotune([triton.Config({"BLOCK": 32}, num_stages=5, num_ctas=2, maxnreg=64)], key=[])(raw)

def my_tune(fn):
    return triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 8})], key=[])(triton.jit(fn))

@my_tune
def other(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)

def run(x, n):
    tuned[(1,)](x, n)
    other[(1,)](x)
"""
    )
    (variant,) = kernel(code, "raw").variants
    assert variant.constants["BLOCK"] == 32
    assert (variant.launch.num_stages, variant.launch.num_ctas, variant.launch.maxnreg) == (5, 2, 64)
    assert [one["BLOCK"] for one in constants(code, "other")] == [16, 8]


def test_heuristics_see_the_other_constants() -> None:
    code = (
        """
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "MODE": lambda args: args["missing"]})
"""
        + BODY.lstrip()
        + "\ndef run(x):\n    k[(1,)](x, 512, BLOCK=256)\n"
    )
    found = kernel(code)
    (variant,) = found.variants
    assert variant.constants["EVEN"] is True
    assert "MODE" not in variant.constants
    assert variant.chosen_by == "heuristic"
    assert set(found.attrs["heuristics"]) == {"EVEN", "MODE"}  # type: ignore[arg-type]


def test_constants_behind_host_conditions_are_a_set() -> None:
    code = (
        BODY
        + """
def run(x, n, causal: bool):
    if n > 4096:
        block = 1024
    elif n > 512:
        block = 256
    else:
        block = 64
    k[(1,)](x, n, block, causal)
"""
    )
    found = {(one["BLOCK"], one["EVEN"]) for one in constants(code)}
    assert found == {(b, e) for b in (64, 256, 1024) for e in (True, False)}


def test_a_condition_that_guards_the_launch_is_no_choice() -> None:
    code = (
        BODY
        + """
def run(x, n):
    big = n > 4096
    block = 1024 if big else 64
    if big:
        k[(1,)](x, n, block)
"""
    )
    assert [one["BLOCK"] for one in constants(code)] == [1024]


def test_arguments_that_only_a_run_knows_stay_unknown() -> None:
    (found,) = constants(BODY + "def run(x, n):\n    k[(1,)](x, n, triton.next_power_of_2(n), n % 2 == 0)\n")[:1]
    assert "BLOCK" not in found
    assert "n" not in found


def test_types_and_functions_as_constants() -> None:
    code = """
@triton.jit
def twice(x):
    return x * 2

@triton.jit
def k(x, ACC: tl.constexpr, F: tl.constexpr, SHAPE: tl.constexpr):
    acc = tl.zeros((SHAPE[0], SHAPE[1]), dtype=ACC)
    if ACC == tl.float32:
        acc = F(acc)
    tl.store(x, acc)

def run(x):
    k[(1,)](x, tl.float32, twice, (16, 32))
"""
    found = kernel(code, "k")
    (variant,) = found.variants
    assert variant.constants["ACC"] == "f32"
    (product,) = find(variant.body, Kind.ELEMENTWISE, "mul")
    assert variant.body.ops[product].dtype == "f32"
    assert dims(variant.body, product) == (16, 32)


def test_constants_of_modules_and_classes() -> None:
    code = """
WIDTH: tl.constexpr = 64
LOG2E = tl.constexpr(1.4427)
class Cfg:
    STAGES = 3

@triton.jit
def k(x, BLOCK: tl.constexpr):
    for i in tl.range(0, BLOCK, num_stages=Cfg.STAGES):
        tl.store(x + tl.arange(0, WIDTH), LOG2E)

def run(x):
    k[(1,)](x, BLOCK=2 * WIDTH)
"""
    found = kernel(code, "k")
    lowered = found.variants[0].body
    assert found.variants[0].constants["BLOCK"] == 128
    assert lowered.loops[0].attrs["num_stages"] == 3
    assert dims(lowered, find(lowered, Kind.ARANGE)[0]) == (64,)


def test_many_configurations_keep_the_extremes() -> None:
    code = """
@triton.autotune([triton.Config({"BLOCK": 16 * i}, num_warps=w) for i in range(1, 60) for w in (1, 2, 4)], key=[])
@triton.jit
def k(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)

def run(x):
    k[(1,)](x)
"""
    found = kernel(code)
    assert found.attrs["configs_total"] == 177
    assert len(found.variants) <= 64
    blocks = {one.constants["BLOCK"] for one in found.variants}
    assert {16, 944} <= blocks


def test_configurations_that_cannot_be_evaluated_leave_the_kernel_with_unknown_constants() -> None:
    found = kernel("""
from elsewhere import configs

@triton.autotune(configs=configs(), key=[])
@triton.jit
def k(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)

def run(x):
    k[(1,)](x)
""")
    (variant,) = found.variants
    assert "BLOCK" not in variant.constants
    assert found.attrs["autotuned"] is True
    assert found.attrs["configs_total"] == 0


@pytest.mark.parametrize("setting", ["", ", pre_hook=hook"])
def test_host_descriptors_give_tiles_their_shape(setting: str) -> None:
    code = f"""
from triton.tools.tensor_descriptor import TensorDescriptor

def hook(nargs):
    rows = nargs["BM"]
    nargs["desc"].block_shape = [rows, nargs["BK"]]

@triton.autotune([triton.Config({{"BM": 64, "BK": 32}}{setting})], key=[])
@triton.jit
def k(desc, out, BM: tl.constexpr, BK: tl.constexpr):
    tl.store(out, tl.sum(desc.load([0, 0])))

def run(x, out):
    desc = TensorDescriptor.from_tensor(x, [1, 8])
    k[(1,)](desc, out)
"""
    found = kernel(code)
    lowered = found.variants[0].body
    load = find(lowered, Kind.LOAD)[0]
    assert lowered.ops[load].attrs["via"] == "descriptor"
    assert dims(lowered, load, {"BM": 64, "BK": 32}) == ((64, 32) if setting else (1, 8))
    assert next(one for one in found.params if one.name == "desc").pointer is True


def test_hostile_constants_stop_in_bounded_time() -> None:
    code = """
@triton.autotune([triton.Config({"BLOCK": b}) for b in range(10 ** 9)], key=[])
@triton.jit
def k(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)

HUGE = 10 ** 10 ** 10
SHIFT = 1 << 10 ** 12
TEXT = "x" * 10 ** 12
while True:
    pass

def forever():
    return forever()

LOOP = forever()

def run(x):
    k[(1,)](x)
"""
    assert kernel(code).reach is Reach.LAUNCHED


def test_the_target_decides_capability_branches() -> None:
    code = (
        BODY
        + """
def run(x):
    if torch.cuda.get_device_capability()[0] >= 10:
        k[(1,)](x, 1, 128)
    else:
        k[(1,)](x, 1, 64)
"""
    )
    assert [one["BLOCK"] for one in constants(code)] == [128]
    from triton_facts import HEADER

    from d2k.analyzers.triton.frontend import read

    hopper = read("k.py", HEADER + code, "", "sm_90a")
    assert [one.constants["BLOCK"] for one in hopper.kernels[0].variants] == [64]
    (mention,) = [one for one in program(code).functions[0].body.mentions if one.name == "k"]
    assert mention.reason == "disabled_branch"


def test_unlaunched_kernels_are_lowered_with_their_defaults() -> None:
    found = kernel(BODY)
    assert found.reach is Reach.EXPORTED
    (variant,) = found.variants
    assert variant.chosen_by == "default"
    assert dict(variant.constants) == {"EVEN": False, "MODE": "plain"}
    assert body(BODY).loops == ()


def test_options_of_the_tuner_that_are_not_known_lose_no_configuration() -> None:
    code = """
from elsewhere import cache

@triton.autotune([triton.Config({"BLOCK": 16})], key=["n"], use_cuda_graph=cache.graphs(), **cache.options())
@triton.jit
def k(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)

def run(x):
    k[(1,)](x)
"""
    assert constants(code) == [{"BLOCK": 16}]


def test_a_constant_of_only_one_case_says_nothing() -> None:
    code = (
        BODY
        + """
def power(n):
    if n <= 1:
        return 1
    return 2 ** (n - 1).bit_length()

def run(x, n):
    k[(1,)](x, n, power(n), num_warps=8 if n > 1024 else 4)
"""
    )
    found = kernel(code)
    assert all("BLOCK" not in one.constants for one in found.variants)
    assert [one.launch.num_warps for one in found.variants] == [8, 4]
    assert [len(one.sites) for one in found.variants] == [1, 1]
