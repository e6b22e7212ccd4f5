"""Every example in a guard's file gets the verdict it states; a guard without both kinds of example is not tested."""

from __future__ import annotations

from importlib import import_module

import pytest

from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import GUARDS, guards
from d2k.spec.finding import GuardFinding, Status

PRELUDE = {
    "triton": "import torch\nimport triton\nimport triton.language as tl\n",
    "cuda": "#include <cuda_runtime.h>\n#include <cstdint>\n",
}
SUFFIX = {"triton": ".py", "cuda": ".cu"}


def examples(name: str) -> tuple[Example, ...]:
    found: tuple[Example, ...] = import_module(f"d2k.analyzers.guards.{name}").EXAMPLES
    return found


def answers(example: Example) -> dict[str, GuardFinding]:
    code = example.code if "import triton" in example.code else PRELUDE[example.language] + example.code
    program = read(f"example{SUFFIX[example.language]}", code, Options())
    assert not program.problems, program.problems
    return {one.id: one for one in guards(ProgramView(program, "sm_100a"))}


@pytest.mark.parametrize(
    ("name", "example"),
    [pytest.param(name, one, id=f"{name}-{one.language}-{one.name}") for name in GUARDS for one in examples(name)],
)
def test_example(name: str, example: Example) -> None:
    found = answers(example)[name]
    assert found.status == ("suspected" if example.status is Status.PRESENT else "absent"), found.detail
    if found.status == "suspected":
        assert found.detail and found.evidence, "a suspicion says what was seen, and where"


@pytest.mark.parametrize("name", GUARDS)
def test_both_kinds_and_traps(name: str) -> None:
    own = examples(name)
    assert any(one.status is Status.PRESENT for one in own)
    innocent = [one for one in own if one.status is not Status.PRESENT]
    assert innocent and all(one.trap for one in innocent), "each innocent example names what it is mistaken for"
    assert len({one.name + one.language for one in own}) == len(own)
    assert import_module(f"d2k.analyzers.guards.{name}").DEFINITION.endswith(".")
