//! Memory strategy "min-cost flow" with shared objects: every tensor either gets a new object, at the cost of its size,
//! or follows another tensor in that tensor's object, at the cost of the bytes that the object must grow.
//!
//! Every tensor has one predecessor and at most one successor, so the flow is an assignment. The assignment is found by
//! successive shortest paths with potentials: one path per tensor over the possible predecessors. Growth is computed
//! from the predecessor's size alone, although an earlier tensor of the object may be larger; this makes the strategy
//! approximate.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::objects::by_first;

/// Cost that marks an assignment of a tensor to a predecessor as impossible.
const NEVER: i128 = i128::MAX / 4;

/// Returns the index of each live range's shared object.
pub(super) fn objects(ranges: &[LiveRange], _conflicts: &Conflicts) -> Vec<usize> {
    let n = ranges.len();
    // Column j < n is "after range j", column n + i "a new object for range i".
    let cost = |row: usize, column: usize| -> i128 {
        if column >= n {
            return if column == n + row { i128::from(ranges[row].size) } else { NEVER };
        }
        match ranges[column].last < ranges[row].first {
            true => i128::from(ranges[row].size.saturating_sub(ranges[column].size)),
            false => NEVER,
        }
    };
    let predecessor = assign(n, 2 * n, cost);
    let mut objects = 0;
    let mut out = vec![0; n];
    // A predecessor starts earlier, so it already has an object.
    for i in by_first(ranges) {
        out[i] = match predecessor[i].filter(|p| *p < n) {
            Some(before) => out[before],
            None => {
                objects += 1;
                objects - 1
            }
        };
    }
    out
}

/// Solves the assignment problem: returns the column to which each row is assigned, such that the sum of the costs is minimal.
fn assign(rows: usize, columns: usize, cost: impl Fn(usize, usize) -> i128) -> Vec<Option<usize>> {
    let mut of_row = vec![0i128; rows];
    let mut of_column = vec![0i128; columns];
    let mut taken: Vec<Option<usize>> = vec![None; columns];
    for start in 0..rows {
        // Dijkstra over columns from row `start`, with costs reduced by the potentials.
        let mut distance = vec![NEVER; columns];
        let mut before: Vec<Option<usize>> = vec![None; columns];
        let mut done = vec![false; columns];
        let mut row = start;
        let mut last: Option<usize> = None;
        let mut reached = 0i128;
        let end = loop {
            for c in (0..columns).filter(|c| !done[*c]) {
                let price = cost(row, c);
                if price >= NEVER {
                    continue;
                }
                let through = reached + price - of_row[row] - of_column[c];
                if through < distance[c] {
                    distance[c] = through;
                    before[c] = last;
                }
            }
            let next =
                (0..columns).filter(|c| !done[*c] && distance[*c] < NEVER).min_by_key(|c| distance[*c]);
            let Some(next) = next else { break None };
            reached = distance[next];
            done[next] = true;
            last = Some(next);
            match taken[next] {
                Some(owner) => row = owner,
                None => break Some(next),
            }
        };
        let Some(end) = end else { continue };
        of_row[start] += reached;
        for c in (0..columns).filter(|c| done[*c] && *c != end) {
            let slack = reached - distance[c];
            of_column[c] -= slack;
            if let Some(owner) = taken[c] {
                of_row[owner] += slack;
            }
        }
        // Along the path, each column moves to the row that reached it.
        let mut column = end;
        while let Some(previous) = before[column] {
            taken[column] = taken[previous];
            column = previous;
        }
        taken[column] = Some(start);
    }
    let mut out = vec![None; rows];
    for (column, owner) in taken.into_iter().enumerate() {
        if let Some(owner) = owner {
            out[owner] = Some(column);
        }
    }
    out
}
