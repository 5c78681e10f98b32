"""Builds the bundles of a manifest on a Ray cluster: `python -m driftc.fleet drift.toml`.

One Ray task builds one bundle with `driftc build --only`. Ray places the tasks, and repeats tasks whose worker died. The
results come back as bytes, or through the shared cache. Then this machine runs `driftc build` with the results as its cache.
`driftc build` checks the results and writes the output folder, the reports and the lock file, all equal to a local build.
"""
