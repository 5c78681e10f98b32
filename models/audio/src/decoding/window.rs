//! Segments of a decoded window, and the start of the next window.

use super::settings::DecodingSettings;

/// Seconds between two timestamp tokens.
const TIMESTAMP_SECONDS: f64 = 0.02;
/// Number of frames of the features between two timestamp tokens.
const STRIDE: usize = 2;

/// Place of a window in a recording, in frames of the features (0.01 seconds each).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First frame.
    pub start: usize,
    /// Number of frames that the recording has in this window.
    pub frames: usize,
}

/// Segment of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSegment {
    /// Start in the recording, in seconds.
    pub start: f64,
    /// End in the recording, in seconds.
    pub end: f64,
    /// Token ids, with timestamps.
    pub tokens: Vec<u32>,
    /// Index of the first token among the tokens of the window.
    pub first: usize,
}

/// Segments of a window, and the distance to the next window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSegments {
    /// Segments in order of time.
    pub segments: Vec<WindowSegment>,
    /// Number of frames from the start of this window to the start of the next one.
    pub advance: usize,
}

impl WindowSegments {
    /// Returns the whole window as one segment, for text without timestamps.
    pub fn whole(written: &[u32], window: Window) -> Self {
        let seconds = |frame: usize| frame as f64 * TIMESTAMP_SECONDS / STRIDE as f64;
        let (start, end) = (seconds(window.start), seconds(window.start + window.frames));
        let segment = WindowSegment { start, end, tokens: written.to_vec(), first: 0 };
        Self { segments: vec![segment], advance: window.frames }
    }
}

/// Splits the tokens of a window into segments, as transformers' `_retrieve_segment`. `written` has the tokens after the
/// prompt, without the end token. A window without two timestamps in a row is one segment.
///
/// The advance is above 0 unless the window has no frames, so a loop over windows ends.
pub fn window_segments(written: &[u32], window: Window, settings: &DecodingSettings) -> WindowSegments {
    let offset = |token: u32| {
        settings.first_timestamp().and_then(|first| token.checked_sub(first)).map(|index| index as usize)
    };
    let is_timestamp: Vec<bool> = written.iter().map(|token| offset(*token).is_some()).collect();
    let start = window.start as f64 * TIMESTAMP_SECONDS / STRIDE as f64;
    let mut ends: Vec<usize> = is_timestamp
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair == &[true, true])
        .map(|(index, _)| index + 1)
        .collect();
    if ends.is_empty() {
        let last = written.iter().rev().find_map(|token| offset(*token)).filter(|index| *index > 0);
        let end = start + last.unwrap_or(window.frames / STRIDE) as f64 * TIMESTAMP_SECONDS;
        let segment = WindowSegment { start, end, tokens: written.to_vec(), first: 0 };
        return WindowSegments { segments: vec![segment], advance: window.frames };
    }
    let has_single_end = is_timestamp.ends_with(&[false, true]);
    if has_single_end {
        ends.push(written.len());
    } else if let Some(last) = ends.last_mut() {
        // The last segment keeps both timestamps, which tells that speech goes on.
        *last += 1;
    }
    let seconds = |token: Option<&u32>| {
        start + token.and_then(|token| offset(*token)).unwrap_or(0) as f64 * TIMESTAMP_SECONDS
    };
    let mut segments = Vec::with_capacity(ends.len());
    let mut first = 0;
    for (index, end) in ends.iter().enumerate() {
        let tokens = written.get(first..*end).unwrap_or_default();
        let has_two = index + 1 == ends.len() && !has_single_end;
        segments.push(WindowSegment {
            start: seconds(tokens.first()),
            end: seconds(tokens.iter().rev().nth(usize::from(has_two))),
            tokens: tokens.to_vec(),
            first,
        });
        first = *end;
    }
    let last = first.checked_sub(2).and_then(|index| written.get(index)).and_then(|token| offset(*token));
    let advance = match last {
        // A window whose last timestamp is its start would be decoded again and again.
        Some(index) if !has_single_end && index > 0 => (index * STRIDE).min(window.frames),
        _ => window.frames,
    };
    WindowSegments { segments, advance }
}
