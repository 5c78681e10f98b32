"""Tests of speech recognition from the Python package: `python test_speech.py`. Needs driftc and numpy."""

import json
import math
import os
import tempfile
import unittest
import wave
from pathlib import Path

import numpy as np

import driftc

TARGET = os.environ.get("DRIFT_TEST_TARGET", "lavapipe")
#: Folder of small Whisper models with windows of 5 seconds, and results of transformers.
WHISPER = Path(__file__).parents[3] / "tests" / "whisper"
RATE = 16000
#: Id of the first timestamp of the model `multilingual`.
FIRST_TIMESTAMP = 277


def signal(seconds: float) -> np.ndarray:
    """Returns the recording of `tests/whisper/make.py`."""
    t = np.arange(int(seconds * RATE)) / RATE
    low = 0.4 * np.sin(2 * math.pi * (140 * t + 30 * np.sin(1.7 * t)))
    high = 0.1 * np.sin(2 * math.pi * 900 * t) * np.sin(2 * math.pi * 0.8 * t)
    return ((low + high) * (0.6 + 0.4 * np.sin(3.1 * t))).astype(np.float32)


def write_wav(path: Path, samples: np.ndarray) -> None:
    """Writes samples of int16 as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())


def hundredths(*times: float) -> list[int]:
    return [round(time * 100) for time in times]


class Speech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # Pipeline caches must not get into the user's cache folder.
        os.environ["XDG_CACHE_HOME"] = cls.folder.name
        cls.path = Path(cls.folder.name) / "multilingual.drift"
        driftc.compile(WHISPER / "multilingual", cls.path, TARGET, precision="f32")
        cls.transcriber = driftc.Transcriber(cls.path)
        cls.expected = json.loads((WHISPER / "expected.json").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.transcriber.close()
        cls.folder.cleanup()

    def wav(self, name: str, seconds: float) -> tuple[Path, np.ndarray]:
        """Writes a WAV file, and returns its path and its samples."""
        samples, path = np.round(signal(seconds) * 32768), Path(self.folder.name) / name
        write_wav(path, samples)
        return path, samples / 32768

    def test_transcripts_agree_with_transformers(self):
        self.assertTrue(self.transcriber.has_tokenizer)
        for run in self.expected["runs"]:
            transcript = self.transcriber(
                signal(run["seconds"]),
                language=run["language"],
                task=run["task"],
                timestamps="word",
                previous_text=run["previous"],
                temperature=0,
            )
            segments = transcript.segments
            got = [(hundredths(segment.start, segment.end), segment.tokens) for segment in segments]
            wanted = [(hundredths(segment["start"], segment["end"]), segment["tokens"]) for segment in run["segments"]]
            self.assertEqual(got, wanted)
            self.assertIn(transcript.language, [run["language"]] if run["language"] else ["de", "en", "fr"])
            self.assertEqual(transcript.text, "".join(segment.text for segment in segments).strip())
            self.assertTrue(any(segment.words for segment in segments))
            for segment, known in zip(segments, run["segments"]):
                self.assertEqual("".join(word.text for word in segment.words), segment.text)
                tokens = zip(known["tokens"], known["times"])
                starts = [time for token, time in tokens if token < FIRST_TIMESTAMP]
                for word in segment.words:
                    self.assertTrue(any(abs(word.start - start) < 0.011 for start in starts), word)

    def test_segments_are_streamed_window_by_window(self):
        with self.transcriber.stream(signal(13.3), timestamps="word", temperature=0) as transcription:
            self.assertIsNone(transcription.language)
            self.assertEqual((transcription.seconds_done, transcription.seconds), (0, 13.3))
            segments, positions = [], []
            for segment in transcription:
                segments.append(segment)
                positions.append(transcription.seconds_done)
                self.assertGreaterEqual(positions[-1], segment.start)
            self.assertEqual(positions, sorted(positions))
            self.assertGreater(len(set(positions)), 2)
            self.assertLess(positions[0], 6)
            self.assertEqual(transcription.seconds_done, 13.3)
            self.assertIsNone(transcription.next_window())
            self.assertEqual(list(transcription), [])
            lines = transcription.to_format("txt")
        transcript = self.transcriber.transcribe(signal(13.3), timestamps="word", temperature=0)
        self.assertEqual((transcript.segments, transcript.notes), (segments, []))
        self.assertEqual(len(lines.splitlines()), sum(bool(segment.text.strip()) for segment in segments))
        with self.assertRaisesRegex(driftc.Error, "the transcription was closed"):
            next(transcription)

    def test_windows_and_several_transcriptions(self):
        first = self.transcriber.stream(signal(12), timestamps="none", temperature=0)
        second = self.transcriber.stream(signal(7), timestamps="none", temperature=0)
        times = []
        while (window := first.next_window()) is not None:
            second.next_window()
            times += [hundredths(segment.start, segment.end) for segment in window]
        self.assertEqual(times, [[0, 500], [500, 1000], [1000, 1200]])

    def test_files_and_samples_give_equal_results(self):
        path, samples = self.wav("talk.wav", 8)
        wanted = self.transcriber(samples.astype(np.float32), temperature=0)
        self.assertTrue(wanted.segments)
        strided = np.stack([samples, samples], axis=1)[:, 0]
        for audio in (path, str(path), samples, strided, list(samples)):
            self.assertEqual(self.transcriber(audio, temperature=0), wanted)
        self.assertEqual(str(wanted), wanted.text)

    def test_transcripts_have_file_formats(self):
        transcript = self.transcriber(signal(5), timestamps="word", temperature=0)
        found = json.loads(transcript.json)
        self.assertEqual(found["language"], transcript.language)
        self.assertEqual([segment["tokens"] for segment in found["segments"]], [s.tokens for s in transcript.segments])
        self.assertTrue(found["segments"][0]["words"])
        self.assertIn("00:00:00,340 --> 00:00:01,280", transcript.srt)
        self.assertTrue(transcript.vtt.startswith("WEBVTT\n\n00:00:00.340 --> 00:00:01.280"))

    def test_temperatures_and_seeds(self):
        plain = self.transcriber(signal(5), language="en", temperature=0)
        # Random weights give unlikely text at all temperatures, so the last temperature is used.
        first = self.transcriber(signal(5), language="en", seed=1)
        self.assertNotEqual(first.segments, plain.segments)
        self.assertEqual(first, self.transcriber(signal(5), language="en", seed=1))
        self.assertNotEqual(first, self.transcriber(signal(5), language="en", seed=2))
        self.assertNotEqual(plain, self.transcriber(signal(5), language="en", temperature=1.0))
        self.assertNotEqual(plain, self.transcriber(signal(5), language="english", prompt="the red", temperature=0))

    def test_models_without_tokenizer_give_token_ids(self):
        path = Path(self.folder.name) / "english.drift"
        driftc.compile(WHISPER / "english", path, TARGET, precision="f32")
        with driftc.Transcriber(path) as transcriber:
            self.assertFalse(transcriber.has_tokenizer)
            transcript = transcriber(signal(3.2))
            [segment] = transcript.segments
            self.assertEqual((segment.start, segment.end, segment.text, segment.words), (0, 3.2, "", []))
            self.assertEqual((segment.tokens, transcript.text), (self.expected["greedy"], ""))
            self.assertIsNone(transcript.language)
            for request, reason in [
                ({"language": "de"}, "no language tokens"),
                ({"task": "translate"}, "does not translate"),
                ({"timestamps": "segment"}, "writes no timestamps"),
                ({"timestamps": "word"}, "cannot time words"),
                ({"prompt": "Drift"}, "no tokenizer"),
            ]:
                with self.assertRaisesRegex(driftc.Error, reason):
                    transcriber.stream(signal(1), **request)
            self.assertEqual(transcriber(np.zeros(0, np.float32)).segments, [])

    def test_requests_that_cannot_be_met_are_errors(self):
        samples = signal(1)
        cases = [
            (samples, {"language": "ja"}, driftc.Error, "does not support the language `ja`; supported: de, en, fr"),
            (samples, {"temperature": -1}, driftc.Error, "the temperature is -1"),
            (samples, {"temperature": math.nan}, driftc.Error, "the temperature is NaN"),
            (samples, {"task": "summarize"}, ValueError, "task is 'summarize'; use transcribe or translate"),
            (samples, {"timestamps": "line"}, ValueError, "timestamps is 'line'; use none, segment or word"),
            ((samples * 32767).astype(np.int16), {}, TypeError, "takes float samples, .* int16; divide .* by 32768"),
            (b"RIFF", {}, TypeError, "takes float samples"),
            (samples > 0, {}, TypeError, "takes float samples, but the array given is bool"),
            (samples.reshape(2, -1), {}, ValueError, r"takes shape \[samples\], .* has shape \[2, 8000\]; compute the mean"),
            (np.float32(1), {}, ValueError, r"has shape \[\]"),
            (Path("/nowhere/no.wav"), {}, driftc.Error, "no.wav: the file cannot be read"),
            (self.folder.name, {}, driftc.Error, "this is a folder"),
            (self.path, {}, driftc.Error, "not a known audio file.*\nhelp: convert the file to one of .* WAV"),
        ]
        for audio, request, kind, reason in cases:
            with self.assertRaisesRegex(kind, reason):
                self.transcriber(audio, **request)
        with self.transcriber.stream(samples) as transcription, self.assertRaisesRegex(driftc.Error, "`docx` is unknown"):
            transcription.to_format("docx")

    def test_damaged_files_give_notes(self):
        path, _ = self.wav("damaged.wav", 3)
        path.write_bytes(path.read_bytes()[:50000])
        [note] = self.transcriber(path, temperature=0).notes
        self.assertRegex(note, "damaged.wav: the file is truncated")

    def test_other_bundles_and_closed_transcribers_are_errors(self):
        with driftc.Transcriber(self.path) as transcriber:
            transcription = transcriber.stream(signal(1))
        with self.assertRaisesRegex(driftc.Error, "the transcriber was closed"):
            next(transcription)
        with self.assertRaisesRegex(driftc.Error, "the transcriber was closed"):
            transcriber(signal(1))
        with self.assertRaisesRegex(driftc.Error, "multilingual is a folder, not a bundle\nhelp: compile it"):
            driftc.Transcriber(WHISPER / "multilingual")
        llama = self.path.with_name("llama.drift")
        driftc.compile(WHISPER.parent / "language" / "llama", llama, TARGET)
        with self.assertRaisesRegex(driftc.Error, "transcribes no recordings.*\nhelp: compile a Whisper folder"):
            driftc.Transcriber(llama)


if __name__ == "__main__":
    unittest.main()
