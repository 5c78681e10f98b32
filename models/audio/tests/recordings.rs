//! Reading of audio files. `recordings.py` wrote the files in `recordings/`.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use drift_audio::{Recording, SAMPLE_RATE};

/// Sample format of a WAV file.
#[derive(Clone, Copy, Debug)]
enum Format {
    U8,
    I16,
    I24,
    I32,
    F32,
}

impl Format {
    fn bits(self) -> u16 {
        match self {
            Format::U8 => 8,
            Format::I16 => 16,
            Format::I24 => 24,
            Format::I32 | Format::F32 => 32,
        }
    }

    fn bytes(self, value: f64) -> Vec<u8> {
        let scaled = |bits: u32| (value * f64::from(1_u32 << (bits - 1))).round() as i32;
        match self {
            Format::U8 => vec![(scaled(8) + 128) as u8],
            Format::I16 => (scaled(16) as i16).to_le_bytes().to_vec(),
            Format::I24 => scaled(24).to_le_bytes()[..3].to_vec(),
            Format::I32 => scaled(32).to_le_bytes().to_vec(),
            Format::F32 => (value as f32).to_le_bytes().to_vec(),
        }
    }
}

/// Returns a WAV file whose frames are the channels' values at each time.
fn wav(format: Format, rate: u32, channels: u16, frames: impl Iterator<Item = Vec<f64>>) -> Vec<u8> {
    let data: Vec<u8> = frames.flatten().flat_map(|value| format.bytes(value)).collect();
    let block = channels * format.bits() / 8;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0");
    file.extend(if matches!(format, Format::F32) { 3_u16 } else { 1 }.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(block)).to_le_bytes());
    file.extend(block.to_le_bytes());
    file.extend(format.bits().to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn sine(rate: u32, seconds: f64) -> impl Iterator<Item = f64> {
    let count = (f64::from(rate) * seconds) as usize;
    (0..count).map(move |i| 0.5 * libm::sin(TAU * 440.0 * i as f64 / f64::from(rate)))
}

fn read_all(recording: &mut Recording) -> Vec<f32> {
    let mut samples = Vec::new();
    while let Some(block) = recording.next_block().unwrap() {
        samples.extend(block);
    }
    samples
}

fn read(bytes: Vec<u8>) -> Vec<f32> {
    read_all(&mut Recording::from_bytes(bytes, "test.wav").unwrap())
}

fn error(bytes: Vec<u8>, name: &str) -> String {
    let error = Recording::from_bytes(bytes, name).err().unwrap();
    assert!(error.help().is_some(), "{error}");
    error.to_string()
}

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(name)
}

/// Checks that samples are a sine of 440 Hz at half amplitude that begins at 0, apart from both ends.
fn check_sine(name: &str, samples: &[f32], seconds: f64) {
    let expected = seconds * SAMPLE_RATE as f64;
    assert!((samples.len() as f64 - expected).abs() <= 1.0, "{name}: {} samples", samples.len());
    let end = ((expected - 400.0) as usize).min(samples.len());
    let middle = &samples[400..end];
    let (mut sin, mut cos, mut square) = (0.0, 0.0, 0.0);
    for (index, sample) in middle.iter().enumerate() {
        let angle = TAU * 440.0 * (index + 400) as f64 / SAMPLE_RATE as f64;
        sin += f64::from(*sample) * libm::sin(angle);
        cos += f64::from(*sample) * libm::cos(angle);
        square += f64::from(*sample).powi(2);
    }
    let scale = 2.0 / middle.len() as f64;
    let amplitude = libm::hypot(sin, cos) * scale;
    assert!((amplitude - 0.5).abs() < 0.02, "{name}: amplitude {amplitude}");
    // Nearly all energy lies in this sine.
    assert!((square * scale - 0.25).abs() < 0.02, "{name}: power {}", square * scale);
    assert!(libm::atan2(cos, sin).abs() < 0.01, "{name}: phase {}", libm::atan2(cos, sin));
}

#[test]
fn wav_files_of_all_formats_and_rates() {
    for format in [Format::U8, Format::I16, Format::I24, Format::I32, Format::F32] {
        for rate in [8000, 16000, 44100, 48000] {
            let samples = read(wav(format, rate, 1, sine(rate, 0.25).map(|v| vec![v])));
            check_sine(&format!("{format:?} at {rate} Hz"), &samples, 0.25);
        }
    }
}

#[test]
fn channels_are_averaged() {
    let frames = [[0.5, 0.0, 0.25], [-0.75, -0.75, 0.0]].into_iter().map(Vec::from);
    assert_eq!(read(wav(Format::F32, 16000, 3, frames)), [0.25, -0.5]);
    let stereo = sine(44100, 0.1).map(|value| vec![value * 2.0, 0.0]);
    check_sine("stereo", &read(wav(Format::F32, 44100, 2, stereo)), 0.1);
}

#[test]
fn samples_that_are_no_numbers_become_silence() {
    let frames = [f64::NAN, f64::INFINITY, 0.5].into_iter().map(|value| vec![value]);
    assert_eq!(read(wav(Format::F32, 16000, 1, frames)), [0.0, 0.0, 0.5]);
}

#[test]
fn flac_mp3_and_vorbis_files() {
    for (name, seconds) in [("sine.flac", 0.3), ("sine.mp3", 0.3), ("sine.ogg", 0.3)] {
        let mut recording = Recording::open(&stored(name)).unwrap();
        let samples = read_all(&mut recording);
        check_sine(name, &samples, seconds);
        assert_eq!(recording.notes(), Vec::<String>::new(), "{name}");
        assert!((recording.seconds_read() - samples.len() as f64 / 16000.0).abs() < 1e-9);
    }
    assert_eq!(Recording::open(&stored("sine.flac")).unwrap().stated_seconds(), Some(0.3));
}

#[test]
fn blocks_join_to_the_whole_recording() {
    let file = wav(Format::I16, 44100, 1, sine(44100, 2.5).map(|v| vec![v]));
    let whole = read(file.clone());
    assert_eq!(whole.len(), 40000);
    let mut recording = Recording::from_bytes(file, "test.wav").unwrap();
    let mut joined = Vec::new();
    for size in [1, 0, 999, 16000, 5, 100_000] {
        let block = recording.read(size).unwrap();
        assert!(block.len() == size || joined.len() + block.len() == whole.len());
        joined.extend(block);
    }
    assert_eq!(joined, whole);
    assert_eq!((recording.read(10).unwrap(), recording.next_block().unwrap()), (vec![], None));
}

#[test]
fn truncated_files_are_read_to_their_end() {
    let mut file = wav(Format::I16, 16000, 1, sine(16000, 1.0).map(|v| vec![v]));
    file.truncate(44 + 16001);
    let mut recording = Recording::from_bytes(file, "cut.wav").unwrap();
    let samples = read_all(&mut recording);
    assert!((7000..=8000).contains(&samples.len()), "{}", samples.len());
    assert!(recording.is_truncated());
    assert_eq!(recording.notes(), ["cut.wav: the file is truncated; its end is missing"]);
    for name in ["sine.flac", "sine.mp3", "sine.ogg"] {
        let bytes = std::fs::read(stored(name)).unwrap();
        for length in [1, 20, 100, bytes.len() / 2, bytes.len() - 50] {
            let Ok(mut recording) = Recording::from_bytes(bytes[..length].to_vec(), name) else {
                // All sound of the OGG file lies in one page.
                assert!(length <= 100 || name == "sine.ogg", "{name}: {length} bytes give nothing");
                continue;
            };
            assert!(!read_all(&mut recording).is_empty());
            assert!(recording.is_truncated(), "{name}: {length} bytes");
        }
    }
}

#[test]
fn mp3_files_without_the_header_of_an_encoder_state_no_length() {
    let bytes = std::fs::read(stored("sine.mp3")).unwrap();
    let second = 4 + bytes[4..].windows(2).position(|pair| pair[0] == 0xff && pair[1] == bytes[1]).unwrap();
    let mut recording = Recording::from_bytes(bytes[second..].to_vec(), "a.mp3").unwrap();
    assert_eq!(recording.stated_seconds(), None);
    assert!(read_all(&mut recording).len() >= 4800);
    assert_eq!(recording.notes(), Vec::<String>::new());
}

#[test]
fn chained_ogg_files_are_read_one_after_another() {
    let bytes = std::fs::read(stored("sine.ogg")).unwrap();
    let once = read_all(&mut Recording::open(&stored("sine.ogg")).unwrap());
    let mut chained = Recording::from_bytes([bytes.clone(), bytes.clone()].concat(), "chained.ogg").unwrap();
    let twice = read_all(&mut chained);
    assert!(twice.len().abs_diff(2 * once.len()) <= 1, "{} samples, not {}", twice.len(), 2 * once.len());
    check_sine("chained.ogg", &twice[once.len()..], 0.3);
    let cut = [&bytes[..], &bytes[..bytes.len() / 2]].concat();
    let mut cut = Recording::from_bytes(cut, "cut.ogg").unwrap();
    assert_eq!(read_all(&mut cut).len(), once.len());
}

#[test]
fn damaged_files_neither_panic_nor_hang() {
    let wav = wav(Format::I16, 44100, 2, sine(44100, 0.02).map(|v| vec![v, v]));
    let stored =
        ["sine.flac", "sine.mp3", "sine.ogg"].map(|name| (name, std::fs::read(stored(name)).unwrap()));
    for (name, bytes) in stored.into_iter().chain([("test.wav", wav)]) {
        let mut state = 1_u32;
        for _ in 0..60 {
            let mut damaged = bytes.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let index = (state >> 8) as usize % damaged.len();
                damaged[index] ^= (state >> 3) as u8;
            }
            if let Ok(mut recording) = Recording::from_bytes(damaged, name) {
                let mut samples = 0;
                while let Ok(Some(block)) = recording.next_block() {
                    assert!(block.iter().all(|sample| sample.is_finite()), "{name}");
                    samples += block.len();
                    assert!(samples < 1 << 24, "{name}: too many samples");
                }
            }
        }
    }
}

#[test]
fn files_that_are_no_recordings_are_errors() {
    let missing = Recording::open(Path::new("no/such/file.wav")).err().unwrap();
    assert!(missing.to_string().starts_with("no/such/file.wav: the file cannot be read: "), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    assert!(Recording::open(folder.path()).err().unwrap().to_string().contains("a folder, not a file"));
    assert_eq!(error(Vec::new(), "a.wav"), "a.wav: the file is empty");
    let text = error(b"This is a text and no recording.\n".repeat(100), "a.txt");
    assert!(text.starts_with("a.txt: the file is not a known audio file: "), "{text}");
    let m4a = error([b"\0\0\0\x20ftypM4A ", &[0; 200][..]].concat(), "a.m4a");
    assert_eq!(m4a, "a.m4a: the file is not a known audio file: MP4 or M4A files are not supported");
    assert_eq!(
        error(wav(Format::I16, 16000, 1, std::iter::empty()), "a.wav"),
        "a.wav: the file has no audio samples"
    );
    assert_eq!(
        error(wav(Format::I16, 10, 1, [vec![0.0]].into_iter()), "a.wav"),
        "a.wav: the sample rate is 10 Hz; supported: 1000 to 768000 Hz"
    );
}

#[test]
fn unsupported_codecs_are_named() {
    let error = Recording::open(&stored("sine.opus.ogg")).err().unwrap();
    assert!(error.to_string().ends_with("sine.opus.ogg: the codec Opus is not supported"), "{error}");
    assert!(
        error.help().unwrap().ends_with("WAV (PCM of 8, 16, 24 or 32 bits, or float), FLAC, MP3, OGG Vorbis")
    );
}
