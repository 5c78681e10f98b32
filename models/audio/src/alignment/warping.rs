//! Dynamic time warping of tokens and frames, as in transformers.

use crate::{Error, Result};

/// Shape of cross-attention weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Number of alignment heads.
    pub heads: usize,
    /// Number of tokens after the prompt.
    pub tokens: usize,
    /// Number of frames of the encoder (0.02 seconds each) that the recording has.
    pub frames: usize,
}

/// Move of a path from a cell to the cell before.
#[derive(Clone, Copy, PartialEq)]
enum Move {
    /// To the previous token and the previous frame.
    Both,
    /// To the previous token.
    Token,
    /// To the previous frame.
    Frame,
}

/// Returns the frame of the encoder at which each token begins. Row `k` has the weights of the step that reads token `k`
/// after the prompt, so the last token of a window has no row unless the decoder reads it too. The weights have the layout `[heads, tokens, frames]` in
/// row-major order. They are normalized over the tokens, filtered by a median over the frames, and averaged over the heads,
/// as in transformers' `_extract_token_timestamps`.
///
/// # Errors
/// If the number of weights differs from the shape, a size is 0, or the width of the filter is even.
pub fn token_frames(weights: &[f32], shape: AttentionShape, median_width: usize) -> Result<Vec<usize>> {
    let AttentionShape { heads, tokens, frames } = shape;
    let cells = tokens.checked_mul(frames);
    let count = cells.and_then(|cells| cells.checked_mul(heads));
    if heads == 0 || tokens == 0 || frames == 0 || count != Some(weights.len()) {
        return Err(Error::Request(format!(
            "{} cross-attention weights do not have the shape [{heads}, {tokens}, {frames}]; pass one weight per head, token and frame, and at least one of each",
            weights.len()
        )));
    }
    let mut mean = vec![0.0_f32; tokens * frames];
    for head in weights.chunks_exact(tokens * frames) {
        for (row, sums) in normalize(head, frames).chunks_exact(frames).zip(mean.chunks_exact_mut(frames)) {
            for (sum, value) in sums.iter_mut().zip(median_filter(row, median_width)?) {
                *sum += value;
            }
        }
    }
    let costs: Vec<f64> = mean.iter().map(|sum| -f64::from(*sum / heads as f32)).collect();
    let path = warp(&costs, frames)?;
    let mut starts: Vec<usize> = Vec::with_capacity(tokens);
    for (token, frame) in path {
        if token == starts.len() {
            starts.push(frame);
        }
    }
    Ok(starts)
}

/// Subtracts the mean over the tokens and divides by the standard deviation, for each frame. Frames with equal weights for
/// all tokens become 0.
fn normalize(head: &[f32], frames: usize) -> Vec<f32> {
    let count = (head.len() / frames) as f64;
    let mut sums = vec![(0.0_f64, 0.0_f64); frames];
    for row in head.chunks_exact(frames) {
        for (sum, value) in sums.iter_mut().zip(row) {
            sum.0 += f64::from(*value);
        }
    }
    for row in head.chunks_exact(frames) {
        for (sum, value) in sums.iter_mut().zip(row) {
            let distance = f64::from(*value) - sum.0 / count;
            sum.1 += distance * distance;
        }
    }
    let scaled = |(value, (sum, squares)): (&f32, &(f64, f64))| {
        let deviation = (squares / count).sqrt();
        if deviation > 0.0 { ((f64::from(*value) - sum / count) / deviation) as f32 } else { 0.0 }
    };
    head.chunks_exact(frames).flat_map(|row| row.iter().zip(&sums).map(scaled)).collect()
}

/// Applies a median filter to a row. The ends are continued by reflection. Rows of at most half the width stay as they are.
///
/// # Errors
/// If the width is even.
pub fn median_filter(row: &[f32], width: usize) -> Result<Vec<f32>> {
    if width.is_multiple_of(2) {
        return Err(Error::Request(format!(
            "the width of the median filter is {width}; use an odd number (`median_filter_width` of config.json)"
        )));
    }
    let half = width / 2;
    if row.len() <= half {
        return Ok(row.to_vec());
    }
    let before = row.iter().skip(1).take(half).rev();
    let after = row.iter().rev().skip(1).take(half);
    let padded: Vec<f32> = before.chain(row).chain(after).copied().collect();
    let mut sorted = Vec::with_capacity(width);
    let median = |window: &[f32]| {
        sorted.clear();
        sorted.extend_from_slice(window);
        sorted.sort_unstable_by(f32::total_cmp);
        sorted.get(half).copied().unwrap_or(0.0)
    };
    Ok(padded.windows(width).map(median).collect())
}

/// Returns the cheapest path through a matrix of costs of shape `[tokens, frames]`, as pairs of token and frame. Sums are
/// f32 and ties go to the previous frame, as in transformers' `_dynamic_time_warping`.
///
/// # Errors
/// If the matrix is empty or not a whole number of rows.
pub fn warp(costs: &[f64], frames: usize) -> Result<Vec<(usize, usize)>> {
    if costs.is_empty() || frames == 0 || !costs.len().is_multiple_of(frames) {
        return Err(Error::Request(format!(
            "{} costs do not make rows of {frames} frames; pass at least one row",
            costs.len()
        )));
    }
    let mut moves = Vec::with_capacity(costs.len());
    let mut previous = vec![f32::INFINITY; frames + 1];
    if let Some(first) = previous.first_mut() {
        *first = 0.0;
    }
    for row in costs.chunks_exact(frames) {
        let mut current = Vec::with_capacity(frames + 1);
        let mut left = f32::INFINITY;
        current.push(left);
        for (cost, pair) in row.iter().zip(previous.windows(2)) {
            let &[both, token] = pair else { continue };
            let (sum, step) = if both < token && both < left {
                (both, Move::Both)
            } else if token < both && token < left {
                (token, Move::Token)
            } else {
                (left, Move::Frame)
            };
            left = (cost + f64::from(sum)) as f32;
            current.push(left);
            moves.push(step);
        }
        previous = current;
    }
    Ok(trace(&moves, frames))
}

/// Follows the moves from the last cell to the first one. Returns the cells in order.
fn trace(moves: &[Move], frames: usize) -> Vec<(usize, usize)> {
    let (mut token, mut frame) = (moves.len() / frames - 1, frames - 1);
    let mut path = Vec::with_capacity(token + frames);
    loop {
        path.push((token, frame));
        let step = match (token, frame) {
            (0, 0) => break,
            // Cells at the edges have one cell before them.
            (0, _) => Move::Frame,
            (_, 0) => Move::Token,
            _ => moves.get(token * frames + frame).copied().unwrap_or(Move::Both),
        };
        if step != Move::Frame {
            token -= 1;
        }
        if step != Move::Token {
            frame -= 1;
        }
    }
    path.reverse();
    path
}
