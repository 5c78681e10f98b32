//! Memory strategy "greedy by size" that assigns tensors to shared objects, with the priorities of TFLite GPU. The k-th
//! positional maximum is the maximum over all dispatches of the k-th largest live size. The next tensor is the one that the
//! fewest positional maxima exceed; if several are equal, the one closest in time to the users of an object that it may reuse;
//! then the larger one. Objects are then in use without long pauses, and the k-th object stays close to the k-th positional
//! maximum.

use std::cmp::Reverse;

use super::LiveRange;
use super::bounds::positional_maxima;
use super::conflicts::Conflicts;
use super::objects::Objects;

/// Returns the index of each live range's shared object.
pub(super) fn objects(ranges: &[LiveRange], _conflicts: &Conflicts) -> Vec<usize> {
    let maxima = positional_maxima(ranges);
    // Maxima descend: the position of a range is the number of maxima that are larger than it.
    let position = |r: &LiveRange| maxima.partition_point(|m| *m > r.size);
    let mut objects = Objects::default();
    let mut waiting: Vec<Waiting> = ranges
        .iter()
        .enumerate()
        .map(|(index, r)| Waiting { index, position: position(r), nearest: None })
        .collect();
    let mut out = vec![0; ranges.len()];
    loop {
        let next = (0..waiting.len()).min_by_key(|w| {
            let Waiting { index, position, nearest } = &waiting[*w];
            let distance = nearest.map_or(usize::MAX, |(distance, _)| distance);
            (*position, distance, Reverse(ranges[*index].size), *index)
        });
        let Some(next) = next else { return out };
        let taken = waiting.swap_remove(next);
        let object = objects.assign(taken.nearest.map(|(_, o)| o), &ranges[taken.index]);
        out[taken.index] = object;
        // Only the object that changed can have become nearer, or busy.
        for w in &mut waiting {
            let range = &ranges[w.index];
            let fits = |o: usize| objects.size(o) >= range.size && objects.is_free(o, range);
            if fits(object) {
                let offer = (objects.distance(object, range), object);
                w.nearest = Some(w.nearest.map_or(offer, |n| n.min(offer)));
            } else if w.nearest.is_some_and(|(_, o)| o == object) {
                let free = (0..objects.len()).filter(|o| fits(*o));
                w.nearest = free.map(|o| (objects.distance(o, range), o)).min();
            }
        }
    }
}

/// A live range that has no shared object yet.
struct Waiting {
    index: usize,
    position: usize,
    /// The nearest shared object that the range may reuse, with the distance in dispatches.
    nearest: Option<(usize, usize)>,
}
