//! `driftc ops`: lists the supported ONNX operators with their operator set versions.

use std::io::Write;

use clap::Args;
use driftc::import::onnx::{Supported, supported};
use serde::Serialize;

use crate::failure::Result;
use crate::output::Out;

#[derive(Debug, Args)]
pub(crate) struct OpsArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    operator: &'static str,
    domain: &'static str,
    /// First version of the operator set for which the operator is supported.
    since: i64,
    /// Last version of the operator set that contains the operator, if a later version removed it.
    until: Option<i64>,
}

pub(crate) fn run(args: &OpsArgs, out: &mut Out) -> Result<()> {
    let row = |s: Supported| Row { operator: s.name, domain: s.domain, since: s.since, until: s.until };
    let rows: Vec<Row> = supported().into_iter().map(row).collect();
    if args.json {
        return out.json(&rows);
    }
    let mut table = vec![vec!["operator".to_owned(), "opset".to_owned(), "domain".to_owned()]];
    for row in &rows {
        let until = row.until.map_or_else(String::new, |u| u.to_string());
        let domain = if row.domain.is_empty() { "ai.onnx" } else { row.domain };
        table.push(vec![row.operator.to_owned(), format!("{}..{until}", row.since), domain.to_owned()]);
    }
    out.table(&[false, false, false], &table)?;
    Ok(writeln!(out, "\n{} operators", rows.len())?)
}
