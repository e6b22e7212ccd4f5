"""Device profiles, bounds and floors, by figures worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from d2k.spec.device import MEMORY, bound, devices, floor
from d2k.spec.hardware import ARCHITECTURES, ENGINES
from d2k.spec.task import Workload

MIB = 1 << 20


def workload(**changes: object) -> Workload:
    plain = Workload(
        "w",
        (),
        "",
        {},
        {},
        (),
        flops={"tensor.bf16": 989 * 10**12},
        bytes=48 * 10**8,
        bytes_read=40 * 10**8,
        bytes_written=8 * 10**8,
        flops_min=989 * 10**12,
        bytes_min=48 * 10**8,
    )
    return msgspec.structs.replace(plain, **changes)


def test_profiles_agree_with_the_architectures() -> None:
    assert set(devices()) == {"sm90", "sm100"}
    for name, device in devices().items():
        architecture = ARCHITECTURES[name]
        assert (device.architecture, device.name, device.sms) == (name, architecture.device, architecture.sms)
        assert (device.tensor_memory_bytes_per_sm > 0) == ("tmem" in architecture.features)
        assert set(device.peak) == set(device.per_clock_per_sm) <= set(ENGINES)


@pytest.mark.parametrize("name", ["sm90", "sm100"])
def test_the_published_peak_lies_below_the_rate_at_the_highest_clock(name: str) -> None:
    device = devices()[name]
    for engine, peak in device.peak.items():
        most = device.per_clock_per_sm[engine] * device.sms * device.max_clock_hz
        # fp32 peaks are quoted at the boost clock itself, rounded; tensor peaks at a lower one.
        assert 0.85 <= peak / most <= 1.02, engine


def test_the_bound_is_the_slowest_resource() -> None:
    h200 = devices()["sm90"]
    found = bound(workload(), h200)  # 989 TFLOP at 989 TFLOP/s, 4.8 GB at 4.8 TB/s
    assert found is not None and (found.seconds, found.limit) == (pytest.approx(1.0), "tensor.bf16")
    slow = bound(workload(bytes=96 * 10**11), h200)  # 9.6 TB at 4.8 TB/s
    assert slow is not None and (slow.seconds, slow.limit) == (pytest.approx(2.0), MEMORY)
    both = bound(workload(flops={"tensor.bf16": 989 * 10**11, "cuda.f32": 67 * 10**12}), h200)
    assert both is not None and (both.seconds, both.limit) == (pytest.approx(1.0), "cuda.f32")


def test_a_rate_that_is_not_known_gives_no_bound() -> None:
    h200 = devices()["sm90"]
    fp4 = workload(flops={"tensor.f4": 1})
    assert bound(fp4, h200) is None and floor(fp4, h200) is None
    assert bound(fp4, devices()["sm100"]) is not None


def test_the_floor_uses_the_highest_clock() -> None:
    found = floor(workload(), devices()["sm90"])
    # 4096 operations a clock on each of 132 SMs at 1.98 GHz are 1.0705e15 a second.
    assert found is not None and found.limit == "tensor.bf16"
    assert found.seconds == pytest.approx(989e12 / (4096 * 132 * 1.98e9))


def test_the_floor_lets_writes_stay_in_the_cache() -> None:
    h200 = devices()["sm90"]
    light = {"flops_min": 1, "flops": {"cuda.f32": 1}}
    few = floor(workload(bytes_min=100 * MIB, bytes_written=10 * MIB, **light), h200)
    assert few is not None and few.seconds == pytest.approx(90 * MIB / 4.8e12)
    many = floor(workload(bytes_min=200 * MIB, bytes_written=100 * MIB, **light), h200)  # the L2 holds 50 MiB
    assert many is not None and many.seconds == pytest.approx(150 * MIB / 4.8e12)
    none = floor(workload(bytes_min=MIB, bytes_written=MIB, **light), h200)
    assert none is not None and none.limit == "cuda.f32"
