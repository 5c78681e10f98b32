"""Pictures of diffusion models, from a text or from an image."""

from __future__ import annotations

import os
import sys
from ctypes import byref, c_char_p, c_size_t
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

from ._closing import Closing
from ._declarations import EachStep, Handle, ImageRequestStruct, ImageResultStruct, PictureStruct
from ._native import LoadOptions, calls, check


@dataclass(frozen=True)
class ImageStep:
    """Denoising step that the device finished."""

    #: Index of the step, from 0.
    step: int
    #: Number of steps that run.
    steps: int
    #: Seconds that the step took.
    time: float


@dataclass(frozen=True, eq=False)
class Picture:
    """Picture, with the settings of its run. ``np.asarray(picture)`` returns the pixels."""

    #: Red, green and blue of each pixel: ``[height, width, 3]``, uint8. Empty (``[0, 0, 3]``) if the run was cancelled.
    pixels: np.ndarray
    #: Number of denoising steps of the schedule. With an image, only a part of them ran.
    steps: int
    #: Scale of classifier-free guidance.
    guidance: float
    #: Name of the scheduler's class in diffusers.
    scheduler: str
    #: Ends of prompts that were cut off, because the text encoder takes no more tokens.
    cut: list[str]
    #: True if ``on_step`` returned False, so that there are no pixels. The settings are then 0 or empty.
    cancelled: bool

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.pixels if dtype is None else self.pixels.astype(dtype, copy=False)
        return array.copy() if copy else array


class ImagePipeline(Closing):
    """A diffusion model on a device, which makes pictures. Use it as a context manager, or :meth:`close` it."""

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        device: str | None = None,
        target: str | None = None,
        pipeline_cache: str | os.PathLike[str] | bool | None = True,
        trust_file: bool = False,
        progress: Callable[[int, int], object] | None = None,
        trusted_keys: Sequence[str] | None = None,
    ) -> None:
        """Loads the bundle of a diffusion model, which :func:`driftc.compile` makes from a diffusers folder.
        :class:`driftc.Session` explains the options."""
        self._handle = Handle()
        path = os.fsencode(bundle)
        options = LoadOptions(device, target, pipeline_cache, 1, trust_file, progress, trusted_keys)
        options.open(
            [os.fspath(bundle)], lambda given: calls["image_pipeline_open"](path, given, byref(self._handle))
        )
        width, height, shape = c_size_t(), c_size_t(), (c_size_t * 4)()
        check(calls["image_pipeline_sizes"](self._handle, byref(width), byref(height), shape))
        #: Width and height of pictures in pixels.
        self.size = (width.value, height.value)
        #: Shape of a latent: ``(1, channels, height, width)``.
        self.latent_shape = tuple(shape)

    def close(self) -> None:
        """Frees the model and its device memory. A second call does nothing."""
        calls["image_pipeline_close"](self._handle)

    def __call__(
        self,
        prompt: str,
        *,
        negative_prompt: str | None = None,
        steps: int | None = None,
        guidance: float | None = None,
        seed: int = 0,
        scheduler: str | None = None,
        image: Any = None,
        mask: Any = None,
        strength: float | None = None,
        on_step: Callable[[ImageStep], object] | None = None,
    ) -> Picture:
        """Makes a picture. Images are arrays of uint8, ``[height, width, 3]`` or ``[height, width]``, or Pillow images. They are
        resized to :attr:`size`.

        :param prompt: text that the picture shows.
        :param negative_prompt: text that the picture avoids.
        :param steps: number of denoising steps (default: 20, or 4 for latent consistency models).
        :param guidance: scale of classifier-free guidance; values up to 1 turn it off (default: as usual for the model).
        :param seed: seed of the noise. Equal seeds give equal pictures.
        :param scheduler: pndm, ddim, euler, euler-a, dpm++2m, dpm++2m-karras or lcm (default: the scheduler of the model).
        :param image: image to start from.
        :param mask: mask of the image: white (or True) where the picture is new, black (or False) where the image is kept.
        :param strength: fraction of the steps that change the image, above 0 and at most 1 (default: 0.8, with a mask 1).
        :param on_step: callback that receives each step as soon as the device finished it. :meth:`latent` then returns the
            latent after the step. If the callback returns False, the run ends without pixels.
        """
        if steps is not None and steps < 1:
            raise ValueError(f"steps is {steps}; request at least 1 denoising step")
        if strength is not None and not 0 < strength <= 1:
            raise ValueError(f"strength is {strength}; use a number above 0 and at most 1")
        texts = prompt.encode(), None if negative_prompt is None else negative_prompt.encode()
        images = _rgb("image", image), _rgb("mask", mask)
        request = ImageRequestStruct(
            prompt=texts[0],
            prompt_size=len(texts[0]),
            negative_prompt=texts[1],
            negative_prompt_size=len(texts[1] or b""),
            scheduler=None if scheduler is None else scheduler.encode(),
            image=_struct(images[0]),
            mask=_struct(images[1]),
            steps=steps or 0,
            seed=seed,
            strength=strength or 0.0,
            guidance=guidance or 0.0,
            has_guidance=guidance is not None,
        )
        return self._run(request, on_step)

    def latent(self) -> np.ndarray:
        """Returns the latent after the last finished step: an array of f32 with the shape :attr:`latent_shape`."""
        latent = np.empty(self.latent_shape, np.float32)
        check(calls["image_pipeline_latent"](self._handle, latent.ctypes.data, latent.size))
        return latent

    def _run(self, request: ImageRequestStruct, on_step: Callable[[ImageStep], object] | None) -> Picture:
        raised: list[BaseException] = []

        def receive(step: int, steps: int, step_ns: int, _: object) -> int:
            try:
                return int(on_step is None or on_step(ImageStep(step, steps, step_ns / 1e9)) is not False)
            except BaseException as error:  # exceptions must not pass through the library
                raised.append(error)
                return 0

        width, height = self.size
        pixels, result = np.empty((height, width, 3), np.uint8), ImageResultStruct()
        arguments = (byref(request), EachStep(receive), None, pixels.ctypes.data, pixels.size, byref(result))
        check(calls["image_pipeline_run"](self._handle, *arguments))
        if raised:
            raise raised[0]
        if result.cancelled:
            return Picture(np.empty((0, 0, 3), np.uint8), 0, 0.0, "", [], True)
        scheduler, cut = (result.scheduler or b"").decode(), [self._cut(index) for index in range(result.cut_count)]
        return Picture(pixels, result.steps, result.guidance, scheduler, cut, False)

    def _cut(self, index: int) -> str:
        """Returns the end of a prompt that was cut off."""
        text = c_char_p()
        check(calls["image_pipeline_cut"](self._handle, index, byref(text)))
        return (text.value or b"").decode()


def _rgb(name: str, image: Any) -> np.ndarray | None:
    """Converts an image to an array ``[height, width, 3]`` of uint8 in C order."""
    if image is None:
        return None
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(image, pillow.Image):
        image = image.convert("RGB")
    array = np.asarray(image)
    if array.dtype == np.bool_:
        array = np.where(array, np.uint8(255), np.uint8(0))
    if array.dtype != np.uint8:
        raise TypeError(f"`{name}` takes uint8, but the array given is {array.dtype}; use values from 0 to 255 as uint8")
    if array.ndim == 2:
        array = np.repeat(array[:, :, np.newaxis], 3, axis=2)
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0:
        shape = list(np.shape(image))
        raise ValueError(f"`{name}` takes shape [height, width, 3] or [height, width], but the array given has shape {shape}")
    return np.ascontiguousarray(array)


def _struct(rgb: np.ndarray | None) -> PictureStruct:
    """Returns the struct of the C interface. The array must live as long as the struct."""
    if rgb is None:
        return PictureStruct()
    height, width, _ = rgb.shape
    return PictureStruct(rgb=rgb.ctypes.data, width=width, height=height)
