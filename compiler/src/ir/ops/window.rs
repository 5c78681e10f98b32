//! Geometry of sliding windows along one axis, for convolutions and pooling.

use std::ops::Range;

use super::check;
use crate::error::OpError;
use crate::ir::dim::Dim;

/// A sliding window along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Number of taps of the window.
    pub(crate) kernel: i64,
    /// Distance between the first taps of adjacent windows, in input elements.
    pub(crate) stride: i64,
    /// Distance between adjacent taps of a window, in input elements.
    pub(crate) dilation: i64,
    /// Padding before the input, in elements.
    pub(crate) begin: i64,
    /// Padding after the input, in elements.
    pub(crate) end: i64,
}

/// Attributes of a convolution or pooling operator from which the windows along all spatial axes follow.
pub(crate) struct Attributes<'a> {
    pub(crate) kernel: &'a [usize],
    pub(crate) strides: &'a [usize],
    pub(crate) dilations: &'a [usize],
    pub(crate) pads_begin: &'a [usize],
    pub(crate) pads_end: &'a [usize],
}

/// Returns one window per spatial axis. All attributes of the operator are checked, so that no arithmetic on windows
/// overflows.
pub(crate) fn windows(a: &Attributes<'_>, spatial: usize) -> Result<Vec<Window>, OpError> {
    let lists = [
        ("kernel", a.kernel),
        ("strides", a.strides),
        ("dilations", a.dilations),
        ("pads_begin", a.pads_begin),
        ("pads_end", a.pads_end),
    ];
    for (name, list) in lists {
        if list.len() != spatial {
            return Err(OpError::new(format!("{name} has {} values for {spatial} spatial axes", list.len())));
        }
    }
    let positive = |value: usize, what: &str| match check::checked_attribute(value, what)? {
        0 => Err(OpError::new(format!("{what} must not be 0"))),
        v => Ok(v),
    };
    (0..spatial)
        .map(|i| {
            Ok(Window {
                kernel: positive(a.kernel[i], "kernel extent")?,
                stride: positive(a.strides[i], "stride")?,
                dilation: positive(a.dilations[i], "dilation")?,
                begin: check::checked_attribute(a.pads_begin[i], "padding")?,
                end: check::checked_attribute(a.pads_end[i], "padding")?,
            })
        })
        .collect()
}

impl Window {
    /// Number of input positions from the first to the last tap of a window.
    pub(crate) fn extent(&self) -> i64 {
        self.dilation * (self.kernel - 1) + 1
    }

    /// Returns the number of window positions over an input.
    ///
    /// With `ceil`, an incomplete last window counts too, unless it starts in the end padding.
    pub(crate) fn count(&self, input: &Dim, ceil: bool) -> Result<Dim, OpError> {
        let mut slack = self.end - self.extent();
        if ceil {
            // The count is floor((n + slack + stride - 1) / stride) + 1, minus one if the last window starts at n or
            // later, where n is the input plus the begin padding. The case distinction does not depend on n.
            let up = slack + self.stride - 1;
            slack = if up < self.stride { up.min(-1) } else { up - self.stride };
        }
        let windows = input.plus(self.begin + slack).floor_div(self.stride).plus(1);
        if windows.as_known().is_some_and(|n| n <= 0) {
            return Err(OpError::new(format!(
                "a kernel that spans {} elements does not fit an input of {input} elements with padding {} and {}",
                self.extent(),
                self.begin,
                self.end
            )));
        }
        Ok(windows)
    }

    /// Returns the range of taps of window `at` that fall on an input of `size` elements, not on its padding.
    pub(crate) fn taps(&self, at: usize, size: usize) -> Range<usize> {
        let start = self.start(at);
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let first = if start >= 0 { 0 } else { (-start + self.dilation - 1) / self.dilation };
        let last = if start >= size { 0 } else { (size - 1 - start) / self.dilation + 1 };
        let last = last.min(self.kernel);
        first.min(last) as usize..last as usize
    }

    /// Returns the number of taps of window `at` that fall on an input of `size` elements or its padding.
    pub(crate) fn padded_taps(&self, at: usize, size: usize) -> usize {
        let end = i64::try_from(size).unwrap_or(i64::MAX).saturating_add(self.end);
        let room = end.saturating_sub(self.start(at)).saturating_add(self.dilation - 1);
        usize::try_from((room / self.dilation).min(self.kernel)).unwrap_or(0)
    }

    /// Returns the input position of the first tap of window `at`; negative in the begin padding.
    pub(crate) fn start(&self, at: usize) -> i64 {
        i64::try_from(at).unwrap_or(i64::MAX).saturating_mul(self.stride).saturating_sub(self.begin)
    }

    /// Returns the input position of a tap of window `at`. The position of a tap in the padding is negative or beyond
    /// the input.
    pub(crate) fn position(&self, at: usize, tap: usize) -> i64 {
        self.start(at).saturating_add((tap as i64).saturating_mul(self.dilation))
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use crate::ir::dim::{Bindings, Dim};

    /// Counts windows as ONNX specifies: round up, then drop a last window that starts in the end padding.
    fn specified_count(w: &Window, n: i64) -> i64 {
        let room = n + w.begin + w.end - w.extent();
        let out = room.div_euclid(w.stride) + i64::from(room.rem_euclid(w.stride) != 0) + 1;
        out - i64::from((out - 1) * w.stride >= n + w.begin)
    }

    #[test]
    fn ceil_mode_follows_onnx() {
        let symbol = Dim::symbol("n");
        for kernel in 1..4 {
            for stride in 1..5 {
                for end in 0..6 {
                    let w = Window { kernel, stride, dilation: 2, begin: 1, end };
                    let symbolic = w.count(&symbol, true).unwrap();
                    for n in 4..12 {
                        let expected = specified_count(&w, n);
                        if expected > 0 {
                            assert_eq!(w.count(&Dim::known(n), true).unwrap(), Dim::known(expected));
                        }
                        let count = symbolic.eval(&Bindings::from([("n".into(), n)]));
                        assert_eq!(count, Some(expected), "{w:?} over {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn taps_outside_the_input_are_left_out() {
        for size in 0..7 {
            for begin in 0..5 {
                let w = Window { kernel: 3, stride: 2, dilation: 2, begin, end: 9 };
                for at in 0..8usize {
                    let inside: Vec<usize> = (0..3)
                        .filter(|t| {
                            let p = at as i64 * 2 - begin + *t as i64 * 2;
                            (0..size as i64).contains(&p)
                        })
                        .collect();
                    assert_eq!(w.taps(at, size).collect::<Vec<_>>(), inside);
                }
            }
        }
    }

    #[test]
    fn a_kernel_larger_than_the_input_is_refused() {
        let w = Window { kernel: 5, stride: 1, dilation: 1, begin: 0, end: 1 };
        assert!(w.count(&Dim::known(3), false).is_err());
        assert_eq!(w.count(&Dim::known(4), false).unwrap(), Dim::known(1));
    }
}
