"""Facts about a program: one small intermediate form for every kernel language.

A front end lowers each kernel, once for each set of compile-time constants, to a `Body`: operations in program order,
each defining one value (static single assignment), with loops, guards and source places. Host functions are lowered to
the same form. Detectors read this form only, so that one detector serves Triton and CUDA wherever the meaning is the
same.

A value is the index of the operation that defines it in `Body.ops`. `NONE` (-1) stands for an operand that is not
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

NONE = -1

Constant = bool | int | float | str | None
AttrValue = Constant | tuple[Constant, ...]


class Place(msgspec.Struct, frozen=True, gc=False):
    """1-based first and last line of a piece of source, and the 0-based column where it starts."""

    path: str
    line: int
    end_line: int
    column: int = 0


class Kind(StrEnum):
    """What an operation does. `name` refines it; `attrs` in brackets. Every kind means the same in every language.

    Names of memory spaces: `global shared tmem local unknown`.
    """

    CONST = "const"  # [value]
    PARAM = "param"  # name of the parameter [constexpr]
    BLOCK_INDEX = "block_index"  # program_id / blockIdx [axis 0..2]
    GRID_SIZE = "grid_size"  # num_programs / gridDim [axis]
    THREAD_INDEX = "thread_index"  # threadIdx [axis]; CUDA only
    BLOCK_SIZE = "block_size"  # blockDim [axis]; CUDA only
    LANE = "lane"  # lane of the warp, however computed
    WARP = "warp"  # warp (or warp group: [group true]) of the block, however computed
    CLUSTER_RANK = "cluster_rank"  # rank of the block in its cluster
    ARANGE = "arange"  # args (start, stop): one value for each element of the block's tile
    FULL = "full"  # args (value,): a tile filled with one value, such as zeros
    ELEMENTWISE = "elementwise"
    # add sub mul div floordiv mod neg abs fma min max | exp exp2 log log2 sqrt rsqrt rcp tanh sigmoid erf sin cos
    # floor ceil |
    # and or xor not shl shr popc | eq ne lt le gt ge | where(cond, yes, no) clamp
    # [fast true]: a hardware approximation asked for by name (__expf, ex2.approx); [packed 2]: two values an
    # instruction
    CAST = "cast"  # name cast | bitcast; the result's dtype is `Op.dtype`; [saturate] [packed]
    SHAPE = "shape"  # trans reshape expand_dims broadcast permute split join slice index cat flip
    # insert: args (array, value, indices…), the array with one element (or row) replaced
    REDUCE = "reduce"  # sum max min argmax argmin prod and or xor | custom; over elements of a tile [axis]
    SCAN = "scan"  # sum prod | associative [axis] [outputs n] [combine: a word for what the combine function computes]
    SORT = "sort"  # sort topk
    HISTOGRAM = "histogram"  # [bins]
    MMA = "mma"  # args (a, b, accumulator or NONE, scales…)
    # [instr any|mma_sync|wgmma|tcgen05|wmma|fma] [a_dtype] [b_dtype] [acc_dtype] [m] [n] [k] [scaled
    # mxfp8|mxfp4|nvfp4|true] [cta_group 2]
    LOAD = "load"  # args (address or array or descriptor, mask, indices…)
    STORE = "store"  # args (address or array or descriptor, value, mask, indices…)
    # both: [space] [via pointer|block_pointer|descriptor|array|vector] [bits per thread] [eviction] [cache]
    # [volatile] [sem] [scope]
    ATOMIC = "atomic"
    # add max min cas exch or and xor inc; args (address, value, mask, …) [space] [sem] [scope] [width elements]
    # [returns used?]
    COPY = "copy"  # asynchronous copies; args (destination, source)
    # name cp_async | tma | bulk; [direction load|store|reduce|gather|scatter|prefetch] [multicast] [bytes]
    # [tensor true] [cache]
    COMMIT = "commit"  # closes a group of asynchronous copies or MMAs; name cp_async | bulk | wgmma | tcgen05
    WAIT = "wait"  # waits for groups; name as above [outstanding n: groups that may still be in flight]
    BARRIER = "barrier"
    # syncthreads syncwarp named cluster grid | mbarrier_init mbarrier_arrive mbarrier_expect mbarrier_wait
    FENCE = "fence"  # [scope] [sem] [proxy]
    SHUFFLE = "shuffle"  # xor up down idx; args (value, lane or offset)
    REDUX = "redux"  # warp-wide reduction instruction: sum max min and or xor
    VOTE = "vote"  # ballot any all match activemask elect
    ALLOC = (
        "alloc"  # on-chip memory or a register array [space shared|tmem|local] [dynamic]; shape and dtype are the op's
    )
    # [layout swizzle|padding|…] [swizzle bytes] [columns: TMEM]
    DESCRIPTOR = "descriptor"
    # a tensor map; args (base pointer, shape…, strides…) [block: tuple of ints] [swizzle] [host true: made by
    # host code]
    CONTROL = "control"
    # setmaxnreg_inc setmaxnreg_dec [registers] | pdl_wait pdl_launch | nanosleep | prefetch | assume
    # (multiple_of, max_contiguous) [value]
    ASM = "asm"  # inline PTX not covered above: name is the mnemonic [modifiers] [text]
    CALL = "call"  # a call whose body is not known: name is the dotted callee
    PHI = "phi"  # name loop (args: before, next) | if (args: condition, then, else)
    ITEM = "item"  # element n of a multi-valued operation; args (value,) [index n]
    ATTRIBUTE = "attribute"  # host: args (object,), name: shape dtype device data_ptr stride is_cuda …
    HOST_ALLOC = "host_alloc"  # host: empty zeros full empty_like … [callee]; args are the sizes
    LAUNCH = (
        "launch"  # host: name is the kernel; args are the arguments, `attrs["params"]` the parameter each belongs to
    )
    # [grid: number of grid values, which are the first args] ; launch options stand in Variant.launch
    HOST_CALL = (
        "host_call"  # host: name is the resolved dotted callee (torch.matmul, cublasGemmEx, self.linear); [keywords]
    )


class Guard(msgspec.Struct, frozen=True, gc=False):
    """An operation runs only where `value` is `expected`."""

    value: int
    expected: bool


class Op(msgspec.Struct, frozen=True, gc=False):
    """One operation; it defines the value of its own index in `Body.ops`.

    `shape` holds values (indices of operations) for the tile's dimensions, or None where it is not known; () is a
    scalar.
    `calls` are the call sites through which a helper was inlined, outermost first.
    `variable` is the source name that the value was assigned to, if any.
    `partition` names the role region of a warp-specialized kernel ("" outside).
    """

    kind: Kind
    name: str
    args: tuple[int, ...]
    place: Place
    attrs: Mapping[str, AttrValue] = {}
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    loop: int = NONE
    guards: tuple[Guard, ...] = ()
    calls: tuple[Place, ...] = ()
    variable: str = ""
    partition: str = ""


class Carried(msgspec.Struct, frozen=True, gc=False):
    """A variable that a loop updates: `phi` is its value inside, `before` on entry, `next` at the end of an
    iteration."""

    variable: str
    before: int
    phi: int
    next: int


class Loop(msgspec.Struct, frozen=True, gc=False):
    """A loop. `form`: for while static (unrolled at compile time). Bounds are values, NONE where there is none.

    `attrs`: num_stages, warp_specialize, flatten, unroll (a factor, or true for all), disallow_acc_multi_buffer, …
    """

    parent: int
    form: str
    variable: int
    start: int
    stop: int
    step: int
    condition: int
    carried: tuple[Carried, ...]
    place: Place
    attrs: Mapping[str, AttrValue] = {}
    guards: tuple[Guard, ...] = ()
    calls: tuple[Place, ...] = ()


class Mention(msgspec.Struct, frozen=True, gc=False):
    """A call or instruction that stands in code that does not run: the raw material of nearest misses.

    `reason`: dead_code disabled_branch helper_not_called fallback_path; `detail` names the condition or the helper.
    """

    name: str
    reason: str
    detail: str
    place: Place


class Body(msgspec.Struct, frozen=True):
    ops: tuple[Op, ...]
    loops: tuple[Loop, ...]
    mentions: tuple[Mention, ...] = ()
    unresolved: tuple[Mention, ...] = ()
    """Calls into code that was not given, and constructs that the front end cannot lower: what depends on them is
    unknown."""


class Launch(msgspec.Struct, frozen=True):
    """Options of a launch; None where the source does not say (`num_warps` has a default that the compiler picks).

    `cluster` are blocks per cluster and axis; `pdl` is programmatic dependent launch on the host side.
    """

    num_warps: int | None = None
    num_stages: int | None = None
    num_ctas: int | None = None
    maxnreg: int | None = None
    threads: int | None = None
    cluster: tuple[int, ...] | None = None
    pdl: bool | None = None
    cooperative: bool | None = None
    options: Mapping[str, AttrValue] = {}


class Variant(msgspec.Struct, frozen=True):
    """A kernel with one set of compile-time constants: one autotune configuration, one template instantiation.

    `label` is "" where there is only one. `chosen_by`: launch autotune heuristic template default unknown.
    Constants whose value is not known are missing from `constants`. `sites` are launches: (host function, value
    of the LAUNCH op).
    """

    label: str
    constants: Mapping[str, Constant]
    launch: Launch
    body: Body
    chosen_by: str = "launch"
    sites: tuple[tuple[str, int], ...] = ()


class Param(msgspec.Struct, frozen=True, gc=False):
    """A kernel's or host function's parameter; `dtype` is the element type where the source says it (CUDA)."""

    name: str
    constexpr: bool = False
    pointer: bool | None = None
    dtype: str | None = None
    default: Constant = None


class Reach(StrEnum):
    """How alive a kernel is: launched from reachable host code, exported with no launch in sight, or dead."""

    LAUNCHED = "launched"
    EXPORTED = "exported"
    DEAD = "dead"


class Kernel(msgspec.Struct, frozen=True):
    name: str
    place: Place
    language: str
    params: tuple[Param, ...]
    reach: Reach
    variants: tuple[Variant, ...]
    attrs: Mapping[str, AttrValue] = {}
    """launch_bounds_threads, launch_bounds_blocks, cluster_dims, autotuned, heuristics, configs_total,
    error_bytes, …"""


class Function(msgspec.Struct, frozen=True):
    """A host function; `reachable` from the entry point, or from outside where no entry is named."""

    name: str
    place: Place
    params: tuple[Param, ...]
    reachable: bool
    body: Body


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be read: a syntax error, bytes under a parse error, a time limit."""

    place: Place
    text: str
    kernels: tuple[str, ...] = ()
    """Names of the kernels whose facts are incomplete; () if none or not known."""


class Program(msgspec.Struct, frozen=True):
    """All facts of one file. `languages`: triton gluon tlx cuda cute_dsl cutile tilelang, in order of appearance.

    `entry` is the host function analysed as the entry point, "" if every exported one is.
    `imports` maps local names to dotted modules or members. `module` is the module-level code, which runs on import.
    """

    path: str
    languages: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    functions: tuple[Function, ...]
    module: Body
    entry: str = ""
    imports: Mapping[str, str] = {}
    mentions: tuple[Mention, ...] = ()
    problems: tuple[Problem, ...] = ()
