"""Every example in a detector's file gets the verdict it states, and every detector has both kinds of example."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import pytest

from d2k.analyzers import properties
from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.engine import find
from d2k.spec.finding import Finding, Status
from d2k.spec.vocabulary import vocabulary

PRELUDE = {
    "triton": "import torch\nimport triton\nimport triton.language as tl\n",
    "cuda": "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cstdint>\n",
}
SUFFIX = {"triton": ".py", "cuda": ".cu"}
DETECTORS = sorted(module.name for module in iter_modules(properties.__path__))


def examples(name: str) -> tuple[Example, ...]:
    found: tuple[Example, ...] = import_module(f"d2k.analyzers.properties.{name}").EXAMPLES
    return found


def finding(name: str, example: Example) -> Finding:
    code = example.code if "import triton" in example.code else PRELUDE[example.language] + example.code
    program = read(f"example{SUFFIX[example.language]}", code, Options())
    assert not program.problems, program.problems
    prop = vocabulary().get(name)
    assert prop is not None, f"{name} is no property of the vocabulary"
    return find(prop, ProgramView(program, "sm_100a"))


@pytest.mark.parametrize(
    ("name", "example"),
    [pytest.param(name, one, id=f"{name}-{one.language}-{one.name}") for name in DETECTORS for one in examples(name)],
)
def test_example(name: str, example: Example) -> None:
    found = finding(name, example)
    assert found.status is example.status, found.why
    if example.status is not Status.PRESENT:
        assert found.why is not None and found.why.detail, "a verdict that is not `present` says why"
        return
    wanted = dict(example.attributes)
    assert any(all(one.attributes.get(key) == value for key, value in wanted.items()) for one in found.instances), (
        f"wanted {wanted}, found {[one.attributes for one in found.instances]}"
    )
    assert all(one.evidence for one in found.instances), "every instance has evidence"


@pytest.mark.parametrize("name", DETECTORS)
def test_both_kinds_and_traps(name: str) -> None:
    own = examples(name)
    assert any(one.status is Status.PRESENT for one in own)
    negatives = [one for one in own if one.status is not Status.PRESENT]
    assert negatives and all(one.trap for one in negatives), "each negative names its trap"
    assert len({one.name + one.language for one in own}) == len(own)
