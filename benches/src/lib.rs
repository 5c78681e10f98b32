//! Measurements of driftc. `RESULTS.md` keeps figures with date, machine and command.
