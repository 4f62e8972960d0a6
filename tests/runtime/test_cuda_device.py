"""What is said where no CUDA device can be used."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import magmagraph as mg
from magmagraph.runtime.cuda import device


@pytest.mark.parametrize(
    "reason",
    [
        "the package cupy is not installed",
        "the driver gives no device: cudaErrorNoDevice: no CUDA-capable device is detected",
        "there is no CUDA device",
    ],
)
def test_why_there_is_none(reason: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(device, "why_unusable", lambda: reason)
    device.device_of.cache_clear()
    with pytest.raises(mg.DeviceError) as caught:
        device.device_of("cuda:1")
    assert str(caught.value) == (
        f"device='cuda:1': {reason}\n"
        "  expected: an NVIDIA GPU with its driver, and cupy\n"
        "  try: pip install 'magmagraph[cuda13]' (or cuda12, after the driver's CUDA version); "
        "device='cpu' runs everything here"
    )


@pytest.mark.parametrize("fails", ["getDeviceCount", "getDeviceProperties", "launch"])
def test_a_device_that_has_failed_before_it_is_first_used(fails: str, monkeypatch: Any) -> None:
    class RuntimeFailure(RuntimeError):
        pass

    class DriverFailure(RuntimeError):
        pass

    def asked(name: str, error: type[Exception], answer: Any) -> Any:
        def ask(*_: Any) -> Any:
            if name == fails:
                raise error("cudaErrorIllegalAddress: an illegal memory access was encountered")
            return answer

        return ask

    class Chosen:
        compute_capability = "90"

        def __init__(self, number: int) -> None:
            asked("launch", DriverFailure, None)()

        def __enter__(self) -> Chosen:
            return self

        def __exit__(self, *reason: Any) -> None:
            pass

    facts = {"name": b"NVIDIA", "multiProcessorCount": 1}
    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeFailure,
        getDeviceCount=asked("getDeviceCount", RuntimeFailure, 1),
        getDeviceProperties=asked("getDeviceProperties", RuntimeFailure, facts),
    )
    driver = SimpleNamespace(CUDADriverError=DriverFailure)
    cuda = SimpleNamespace(runtime=runtime, driver=driver, Device=Chosen)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(device, "why_unusable", lambda: None)
    device.device_of.cache_clear()
    with pytest.raises(mg.DeviceError) as caught:
        device.device_of("cuda")
    assert str(caught.value).startswith("cuda:0 failed: cudaErrorIllegalAddress: an illegal memory")
    assert "device='cpu' runs everything without it" in str(caught.value)


def test_a_device_without_a_number_is_the_first_one(monkeypatch: Any) -> None:
    made: list[int] = []

    class Chosen:
        def __init__(self, number: int) -> None:
            made.append(number)

    class Failure(RuntimeError):
        pass

    runtime = SimpleNamespace(CUDARuntimeError=Failure, getDeviceCount=lambda: 2)
    cuda = SimpleNamespace(runtime=runtime, driver=SimpleNamespace(CUDADriverError=Failure))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(device, "why_unusable", lambda: None)
    monkeypatch.setattr(device, "Device", Chosen)
    device.device_of.cache_clear()
    try:
        assert device.device_of("cuda") is device.device_of("cuda:0")
        assert device.device_of("cuda:1") is not device.device_of("cuda")
        assert made == [0, 1]
    finally:
        device.device_of.cache_clear()
