//! Text of a file with fitted cost parameters, as in `targets/costs/`.

use std::fmt::Write;

use driftc::target::costs::Number;

use super::Fitted;

/// Returns the text of a profile's file in `targets/costs/`.
pub(super) fn text(profile: &str, device: &str, fitted: &Fitted) -> String {
    let fit = &fitted.fit;
    let mut text = String::new();
    let mut line = |what: std::fmt::Arguments<'_>| text.write_fmt(what).unwrap_or_default();
    line(format_args!("# @generated from targets/measured/{profile}.txt: do not edit, but run\n"));
    line(format_args!("# cargo run -p drift-benches --bin fit -- {profile}\n"));
    let (measurements, problems) = (fitted.measurements, fit.problems);
    line(format_args!("\n[source]\ncosts = \"fitted to {measurements} measurements on {device}\"\n"));
    line(format_args!("fit = \"these measurements\"\n"));
    line(format_args!("\n[fit]\nproblems = {problems}\nworst = {:?}\n", fit.worst));
    line(format_args!("regret = {:?}\nmargin = {:?}\n", fit.regret, fit.margin));
    for (group, numbers) in &fitted.costs {
        line(format_args!("\n[costs.{group}]\n"));
        for (name, number) in numbers {
            match number {
                Number::One(value) => line(format_args!("{name} = {value:?}\n")),
                Number::Many(values) => line(format_args!("{name} = {values:?}\n")),
            }
        }
    }
    text
}
