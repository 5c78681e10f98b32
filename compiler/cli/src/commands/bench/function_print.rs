//! Text output of `driftc bench` for a function.

use std::io::Write;
use std::time::Duration;

use super::function_report::{Load, Report};
use super::opened::Size;
use crate::failure::Result;
use crate::output::{Out, bytes, nanoseconds, three_digits, time};

/// Prints the time and the allocations of loading.
pub(super) fn print_load(load: &Load, out: &mut Out) -> Result<()> {
    let ms = |ms: f64| time(Duration::from_secs_f64(ms.max(0.0) / 1e3));
    writeln!(
        out,
        "load            {} = open {} + device {} + weights and pipelines {}",
        ms(load.total_ms),
        ms(load.open_ms),
        ms(load.device_ms),
        ms(load.prepare_ms)
    )?;
    let (n, size) = (load.allocations, bytes(load.allocated_bytes));
    Ok(writeln!(out, "                {} pipelines, {n} allocations of {size}", load.pipelines)?)
}

/// Prints a report. `top` limits the number of dispatches.
pub(super) fn print(report: &Report, top: usize, out: &mut Out) -> Result<()> {
    let ms = |ms: f64| time(Duration::from_secs_f64(ms.max(0.0) / 1e3));
    let (device, driver, target) = (&report.device, report.driver.trim(), &report.target);
    writeln!(out, "{device} ({driver}), variant {target}")?;
    if !report.sizes.is_empty() {
        let size = |size: &Size| format!("{}={} ({})", size.name, size.value, size.from);
        let sizes: Vec<String> = report.sizes.iter().map(size).collect();
        writeln!(out, "sizes           {}", sizes.join(", "))?;
    }
    print_load(&report.load, out)?;
    for (what, t) in [("run with copies ", &report.with_copies), ("run             ", &report.without_copies)]
    {
        writeln!(out, "{what}minimum {}, median {} of {} runs", ms(t.min_ms), ms(t.median_ms), t.runs)?;
    }
    let Some(device_ms) = report.device_ms else {
        return Ok(writeln!(out, "dispatches      not timed: the device has no timestamps")?);
    };
    write!(out, "dispatches      {} in {}", report.dispatches.len(), ms(device_ms))?;
    if let (Some(profile), Some(roofline)) = (&report.profile, report.roofline_ms) {
        let ratio = three_digits(device_ms / roofline.max(1e-9));
        write!(
            out,
            ", {ratio} x the roofline of {}, computed from the machine numbers of {profile}",
            ms(roofline)
        )?;
    }
    writeln!(out, "\n")?;
    let head = ["time", "share", "roofline", "ratio", "bound by", "GFLOP/s", "GB/s", "kernel", "node"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for d in report.dispatches.iter().take(top) {
        rows.push(vec![
            nanoseconds(d.ns),
            format!("{:.1} %", d.share * 100.0),
            d.roofline_ns.map_or_else(String::new, nanoseconds),
            d.ratio.map_or_else(String::new, three_digits),
            d.bound.unwrap_or_default().to_owned(),
            three_digits(d.gflop_s),
            three_digits(d.gb_s),
            d.kernel.clone(),
            d.node.clone(),
        ]);
    }
    out.table(&[true, true, true, true, false, true, true, false, false], &rows)?;
    match report.dispatches.len().saturating_sub(top) {
        0 => Ok(()),
        more => Ok(writeln!(out, "{more} more dispatches; list them with --top")?),
    }
}
