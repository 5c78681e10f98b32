//! An object store of Amazon's protocol that fails, cuts and changes what it answers.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use drift_tests::settings::{self, Scope};

use crate::fixture::text;
use crate::project::{Project, count};

/// Server of a bucket, with faults.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Starts the server. One of `every` answers has a fault; 0 means none.
    fn start(every: u32) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/builds/faulty_s3.py");
        let mut process = Command::new(settings::python())
            .arg(program)
            .arg(every.to_string())
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http://"), "the server did not start: {line}");
        Self { process, url: line.trim().to_owned() }
    }

    fn build(&self, project: &Project) -> Output {
        let args = ["build", "--json", "--no-cache", "--shared-cache", "s3://bundles/ci"];
        let mut command = project.command(&args);
        command.env("AWS_ENDPOINT", &self.url).env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test").output().unwrap()
    }

    /// Number of faults so far.
    fn faults(&self) -> u64 {
        let done = Command::new(settings::python())
            .args(["-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"])
            .arg(format!("{}/faults", self.url))
            .output()
            .unwrap();
        text(&done.stdout).trim().parse().unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_faulty_store_makes_no_wrong_bundle() {
    let wanted = if Scope::from_environment().is_full() { 1000 } else { 40 };
    let plain = Project::new();
    assert!(plain.build(&[]).status.success());
    let right = plain.bundles();
    let server = Server::start(3);
    let project = Project::new();
    let mut fetched = 0;
    while server.faults() < wanted {
        if project.path("bundles").exists() {
            std::fs::remove_dir_all(project.path("bundles")).unwrap();
        }
        let done = server.build(&project);
        assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        assert!(project.bundles() == right);
        fetched += count(&done, "fetched");
    }
    assert!(fetched > 0, "nothing came from the store");
}

#[test]
fn a_store_that_works_gives_every_bundle() {
    let server = Server::start(0);
    let (a, b) = (Project::new(), Project::new());
    assert_eq!(count(&server.build(&a), "built"), 5);
    assert_eq!(count(&server.build(&b), "fetched"), 5);
    assert_eq!(a.bundles(), b.bundles());
}

#[test]
fn a_store_that_disappears_stops_no_build() {
    let server = Server::start(0);
    let project = Project::new();
    assert_eq!(count(&server.build(&project), "built"), 5);
    let url = server.url.clone();
    drop(server);
    std::fs::remove_dir_all(project.path("bundles")).unwrap();
    let gone = Server { process: Command::new("true").spawn().unwrap(), url };
    let done = gone.build(&project);
    assert_eq!(count(&done, "built"), 5, "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("the shared cache is not used"), "{}", text(&done.stderr));
}
