"""What kernel decorators return: `triton.jit`, `autotune`, `heuristics` and those of the other kernel languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from d2k.analyzers.triton.values import UNKNOWN, Config, Func, KernelDef

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Compile options that a configuration or a launch may give beside the kernel's own constants."""


def _kernel(language: str, options: Mapping[str, object]) -> Callable[[object], object]:
    def make(value: object) -> object:
        if isinstance(value, Func):
            return KernelDef(value, language, options=options)
        return value

    return make


def _jit(language: str) -> Callable[..., object]:
    def jit(fn: object = None, **options: object) -> object:
        from d2k.analyzers.triton.interp import Decorator

        make = _kernel(language, options)
        return make(fn) if isinstance(fn, (Func, KernelDef)) else Decorator(make)

    return jit


def _config(kwargs: object = None, *positional: object, **options: object) -> object:
    names = (*OPTIONS[:3], "maxnreg", "pre_hook")
    given = dict(zip(names, positional, strict=False)) | options
    constants = {str(name): value for name, value in kwargs.items()} if isinstance(kwargs, dict) else {}
    return Config({name: value for name, value in constants.items() if value is not UNKNOWN}, given)


def _autotune(configs: object = UNKNOWN, key: object = (), *rest: object, **options: object) -> object:
    from d2k.analyzers.triton.interp import Decorator

    def tune(value: object) -> object:
        if not isinstance(value, KernelDef):
            return value
        pruned = bool(rest) or options.get("prune_configs_by") not in (None, UNKNOWN)
        pruned = pruned or options.get("prune_configs_by") is UNKNOWN
        found = tuple(one for one in configs if isinstance(one, Config)) if isinstance(configs, (list, tuple)) else ()
        return replace(value, configs=found, pruned=pruned)

    return Decorator(tune)


def _heuristics(values: object = UNKNOWN) -> object:
    from d2k.analyzers.triton.interp import Decorator

    def extend(value: object) -> object:
        if not isinstance(value, KernelDef):
            return value
        given = {str(name): one for name, one in values.items()} if isinstance(values, dict) else {"": UNKNOWN}
        return replace(value, heuristics={**given, **value.heuristics})

    return Decorator(extend)


TUNING: Mapping[str, Callable[..., object]] = {
    "triton.jit": _jit("triton"),
    "triton.Config": _config,
    "triton.autotune": _autotune,
    "triton.heuristics": _heuristics,
    "triton.experimental.gluon.jit": _jit("gluon"),
    "triton.experimental.gluon.constexpr_function": lambda fn=None: fn,
    "triton.constexpr_function": lambda fn=None: fn,
    "torch._inductor.runtime.triton_helpers.jit": _jit("triton"),
    "cutlass.cute.kernel": _jit("cute_dsl"),
    "cuda.tile.kernel": _jit("cutile"),
    "tilelang.language.prim_func": _jit("tilelang"),
}
"""Pure functions of kernel libraries that the evaluator can call, by their canonical dotted name."""
