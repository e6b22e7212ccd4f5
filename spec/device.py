"""Device profiles, and the two times that they set for a workload: the bound that is reported and the floor that holds.

The bound uses the rates that a vendor publishes; an excellent kernel comes near it and may now and then beat it. The
floor uses what no kernel can exceed: the highest clock, the least arithmetic, the least traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from d2k.spec.task import Workload


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU. Rates are per second, dense; `peak` is the published one, `per_clock_per_sm` what an SM issues at most.

    `tensor_memory_bytes_per_sm` is 0 where there is none. Registers are of 32 bits.
    """

    name: str
    architecture: str
    sms: int
    max_clock_hz: int
    memory_bytes: int
    bandwidth: int
    l2_bytes: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    registers_per_sm: int
    tensor_memory_bytes_per_sm: int
    peak: Mapping[str, int]
    per_clock_per_sm: Mapping[str, int]


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time in seconds and what sets it: an engine such as `tensor.bf16`, or `memory`."""

    seconds: float
    limit: str


MEMORY = "memory"


@cache
def devices() -> Mapping[str, Device]:
    """Every profile of `spec/devices`, by architecture."""
    found = (
        msgspec.json.decode(one.read_bytes(), type=Device)
        for one in files("d2k.spec").joinpath("devices").iterdir()
        if one.name.endswith(".json")
    )
    return {one.architecture: one for one in sorted(found, key=lambda one: one.name)}


def bound(workload: Workload, device: Device) -> Bound | None:
    """The slowest of the engines and of memory at their published rates; None if a rate is not known."""
    if any(engine not in device.peak for engine in workload.flops):
        return None
    times = [Bound(operations / device.peak[engine], engine) for engine, operations in workload.flops.items()]
    return max(*times, Bound(workload.bytes / device.bandwidth, MEMORY), key=lambda one: one.seconds)


def floor(workload: Workload, device: Device) -> Bound | None:
    """The time that no right result can beat; None if a rate is not known.

    What is written may still lie in the L2 when the kernel ends, so as much does not count.
    """
    if any(engine not in device.per_clock_per_sm for engine in workload.flops):
        return None
    engine = max(workload.flops, key=lambda one: device.per_clock_per_sm[one])
    rate = device.per_clock_per_sm[engine] * device.sms * device.max_clock_hz
    traffic = workload.bytes_min - min(workload.bytes_written, device.l2_bytes)
    times = Bound(workload.flops_min / rate, engine), Bound(max(0, traffic) / device.bandwidth, MEMORY)
    return max(*times, key=lambda one: one.seconds)
