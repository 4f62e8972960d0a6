"""What is said where no CUDA device can be used."""

from __future__ import annotations

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
        "  needed: an NVIDIA GPU with its driver, and cupy\n"
        "  mend: pip install 'magmagraph[cuda13]' (or cuda12, after the driver's CUDA version); "
        "device='cpu' runs everything here"
    )
