"""Tests of pictures from the Python package: `python test_pictures.py`. Needs driftc and numpy."""

import json
import os
import struct
import sys
import tempfile
import types
import unittest
import zlib
from pathlib import Path

import numpy as np

import driftc

TARGET = os.environ.get("DRIFT_TEST_TARGET", "lavapipe")
#: Folder of a small diffusion model, with pictures of diffusers.
DIFFUSION = Path(__file__).parents[3] / "tests" / "diffusion"
PROMPT = "the red cat on the dog"


def read_png(path: Path) -> np.ndarray:
    """Returns the pixels of a PNG file with 8 bits for each of red, green and blue, or with 8 bits of gray."""
    contents, chunks, position = path.read_bytes(), {}, 8
    while position < len(contents):
        size, kind = struct.unpack_from(">I4s", contents, position)
        chunks[kind] = chunks.get(kind, b"") + contents[position + 8 : position + 8 + size]
        position += size + 12
    width, height, bits, color, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    channels = {0: 1, 2: 3}[color]
    assert (bits, interlaced) == (8, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    pixels = np.zeros((height + 1, width * channels + channels), int)
    for y, (kind, *row) in enumerate(rows.tolist(), 1):
        for x, value in enumerate(row, channels):
            left, up, corner = pixels[y, x - channels], pixels[y - 1, x], pixels[y - 1, x - channels]
            nearest = min((left, up, corner), key=lambda near: abs(left + up - corner - near))
            pixels[y, x] = (value + (0, left, up, (left + up) // 2, nearest)[kind]) % 256
    found = pixels[1:, channels:].reshape(height, width, channels).astype(np.uint8)
    return found if channels == 3 else found[:, :, 0]


def expected_latent(name: str) -> np.ndarray:
    return np.fromfile(DIFFUSION / f"{name}.latent", "<f4").reshape(1, 4, 16, 16)


class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # Pipeline caches must not get into the user's cache folder.
        os.environ["XDG_CACHE_HOME"] = cls.folder.name
        cls.path = Path(cls.folder.name) / "sd.drift"
        driftc.compile(DIFFUSION / "sd", cls.path, TARGET)
        cls.pipeline = driftc.ImagePipeline(cls.path)
        cls.runs = json.loads((DIFFUSION / "runs.json").read_text())
        cls.image, cls.mask = read_png(DIFFUSION / "input.png"), read_png(DIFFUSION / "input-mask.png")

    @classmethod
    def tearDownClass(cls):
        cls.pipeline.close()
        cls.folder.cleanup()

    def check(self, name: str, picture: driftc.Picture) -> None:
        """Compares a picture and the last latent with the results of diffusers."""
        wanted, latent = expected_latent(name), self.pipeline.latent()
        self.assertEqual((picture.pixels.dtype, picture.pixels.shape), (np.uint8, (32, 32, 3)))
        difference = np.abs(picture.pixels.astype(int) - read_png(DIFFUSION / f"{name}.png"))
        self.assertLessEqual(difference.max(), 2, name)
        np.testing.assert_allclose(latent, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max(), err_msg=name)

    def test_pictures_from_text(self):
        self.assertEqual((self.pipeline.size, self.pipeline.latent_shape), ((32, 32), (1, 4, 16, 16)))
        seen, latents = [], []

        def on_step(step):
            seen.append(step)
            latents.append(self.pipeline.latent())

        run = self.runs["text"]
        picture = self.pipeline(
            PROMPT, negative_prompt=run["negative"], steps=run["steps"], seed=run["seed"], on_step=on_step
        )
        self.check("text", picture)
        settings = (picture.steps, picture.guidance, picture.scheduler, picture.cut, picture.cancelled)
        self.assertEqual(settings, (5, 7.5, "PNDMScheduler", [], False))
        self.assertEqual([step.step for step in seen], list(range(seen[0].steps)))
        self.assertTrue(all(step.time > 0 for step in seen))
        np.testing.assert_array_equal(latents[-1], self.pipeline.latent())
        self.assertTrue((latents[0] != latents[-1]).any())

        run = self.runs["text-karras"]
        settings = {key: run[key] for key in ("steps", "guidance", "seed", "scheduler")}
        picture = self.pipeline(PROMPT, **settings)
        self.check("text-karras", picture)
        self.assertEqual(picture.scheduler, "DPMSolverMultistepScheduler")

    def test_pictures_from_an_image(self):
        run = self.runs["image"]
        settings = {key: run[key] for key in ("steps", "guidance", "seed", "scheduler", "strength")}
        self.check("image", self.pipeline(PROMPT, image=self.image, **settings))
        run = self.runs["mask"]
        settings = {key: run[key] for key in ("steps", "guidance", "seed", "scheduler")}
        gray = self.mask if self.mask.ndim == 2 else self.mask[:, :, 0]
        for mask in (self.mask, gray, gray >= 128, np.asfortranarray(gray)):
            self.check("mask", self.pipeline(PROMPT, image=self.image, mask=mask, **settings))
        first = self.pipeline(PROMPT, image=self.image, steps=2)
        np.testing.assert_array_equal(np.asarray(first), first.pixels)
        second = self.pipeline(PROMPT, image=first, steps=2)
        self.assertTrue((second.pixels != first.pixels).any())

    def test_pillow_images_are_converted(self):
        image = self.image

        class Image:
            """Stands for `PIL.Image.Image`: pixels with a palette, which `convert` replaces by colors."""

            def convert(self, mode):
                assert mode == "RGB"
                return image

        sys.modules["PIL.Image"] = module = types.ModuleType("PIL.Image")
        module.Image = Image
        try:
            picture = self.pipeline(PROMPT, image=Image(), steps=2)
        finally:
            del sys.modules["PIL.Image"]
        np.testing.assert_array_equal(picture.pixels, self.pipeline(PROMPT, image=image, steps=2).pixels)

    def test_a_run_is_cancelled(self):
        seen = []

        def on_step(step):
            seen.append(step.step)
            return len(seen) < 2

        picture = self.pipeline("a cat", steps=4, on_step=on_step)
        self.assertEqual((seen, picture.cancelled, picture.pixels.shape), ([0, 1], True, (0, 0, 3)))
        with self.assertRaisesRegex(ZeroDivisionError, "zero"):
            self.pipeline("a cat", steps=4, on_step=lambda step: 1 // 0)
        with self.assertRaisesRegex(driftc.Error, "another thread"):
            self.pipeline("a cat", steps=1, on_step=lambda step: self.pipeline("a dog"))

    def test_ends_of_long_prompts_are_reported(self):
        picture = self.pipeline("cat " * 100, steps=1)
        self.assertEqual(len(picture.cut), 1)
        self.assertTrue(picture.cut[0].startswith("cat cat"))

    def test_requests_that_cannot_be_met_are_errors(self):
        image = self.image
        cases = [
            ({"mask": self.mask}, driftc.Error, "a mask needs an image"),
            ({"steps": 0}, ValueError, "steps is 0"),
            ({"steps": -1}, ValueError, "steps is -1"),
            ({"scheduler": "heun"}, driftc.Error, "no scheduler has the name `heun`; use one of .*euler"),
            ({"guidance": float("nan")}, driftc.Error, "the guidance is NaN"),
            ({"guidance": 1e38}, driftc.Error, "not finite after step 1\nhelp: .*--precision f32"),
            ({"image": image, "strength": 1.5}, ValueError, "strength is 1.5"),
            ({"image": image, "strength": 0.0}, ValueError, "strength is 0.0"),
            ({"image": image, "strength": 0.1, "steps": 5}, driftc.Error, "leaves none of 5 denoising steps"),
            ({"image": image / 255}, TypeError, "`image` takes uint8, but the array given is float64"),
            ({"image": image, "mask": image.astype(np.int32)}, TypeError, "`mask` takes uint8"),
            ({"image": image, "mask": image[:, :, :2]}, ValueError, r"`mask` takes shape .* has shape \[32, 32, 2\]"),
            ({"image": image[0, 0]}, ValueError, r"`image` takes shape .* has shape \[3\]"),
            ({"image": image[:0]}, ValueError, r"`image` takes shape .* has shape \[0, 32, 3\]"),
            ({"image": image[np.newaxis]}, ValueError, r"`image` takes shape .* has shape \[1, 32, 32, 3\]"),
        ]
        for arguments, kind, reason in cases:
            with self.assertRaisesRegex(kind, reason):
                self.pipeline("a cat", **{"steps": 2, **arguments})

    def test_other_bundles_and_closed_pipelines_are_errors(self):
        with driftc.ImagePipeline(self.path) as pipeline:
            pass
        with self.assertRaisesRegex(driftc.Error, "the image pipeline was closed"):
            pipeline("a cat")
        with self.assertRaisesRegex(driftc.Error, "the image pipeline was closed"):
            pipeline.latent()
        with self.assertRaises(driftc.Error):
            driftc.ImagePipeline("/nowhere/at/all")
        with self.assertRaisesRegex(driftc.Error, r"sd is a folder, not a bundle\nhelp: compile it"):
            driftc.ImagePipeline(DIFFUSION / "sd")
        llama = self.path.with_name("llama.drift")
        driftc.compile(DIFFUSION.parent / "language" / "llama", llama, TARGET)
        with self.assertRaisesRegex(driftc.Error, "makes no pictures.*\nhelp: compile a diffusers folder"):
            driftc.ImagePipeline(llama)


if __name__ == "__main__":
    unittest.main()
