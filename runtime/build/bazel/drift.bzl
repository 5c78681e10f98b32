"""Rules that compile models with driftc. For Bazel 4.2 and newer.

The compiler is an input of the actions, so bundles are made again with another compiler, and remote execution works.
"""

def _drift_compiler_impl(repository):
    path = repository.os.environ.get("DRIFTC") or repository.which("driftc")
    if not path:
        fail("drift_compiler: the compiler driftc is not in PATH; install it, or set DRIFTC to its path")
    repository.symlink(path, "driftc")
    repository.file("BUILD.bazel", 'exports_files(["driftc"], visibility = ["//visibility:public"])\n')

drift_compiler = repository_rule(
    implementation = _drift_compiler_impl,
    doc = "Repository with the compiler that DRIFTC or PATH names. In WORKSPACE: drift_compiler(name = \"driftc\").",
    environ = ["DRIFTC", "PATH"],
    local = True,
)

def _drift_bundle_impl(ctx):
    model = ctx.file.model

    # A Hugging Face folder is named by its config.json.
    path = model.dirname if model.basename == "config.json" else model.path
    args = ctx.actions.args()
    args.add("compile")
    args.add(path)
    args.add_all(ctx.attr.targets, before_each = "-t")
    args.add_all(ctx.files.profiles, before_each = "-t")
    if ctx.attr.precision:
        args.add("--precision", ctx.attr.precision)
    args.add_all([ctx.expand_location(arg, ctx.attr.data) for arg in ctx.attr.args_of_compile])
    args.add("-o", ctx.outputs.out)
    ctx.actions.run(
        executable = ctx.executable.compiler,
        arguments = [args],
        inputs = [model] + ctx.files.data + ctx.files.profiles,
        outputs = [ctx.outputs.out],
        mnemonic = "DriftBundle",
        progress_message = "Compiling %s" % ctx.outputs.out.short_path,
    )
    return [DefaultInfo(files = depset([ctx.outputs.out]), runfiles = ctx.runfiles([ctx.outputs.out]))]

_drift_bundle = rule(
    implementation = _drift_bundle_impl,
    attrs = {
        "args_of_compile": attr.string_list(doc = "Further arguments of `driftc compile`; $(location X) names a file of data."),
        "compiler": attr.label(allow_single_file = True, cfg = "exec", default = "@driftc//:driftc", executable = True),
        "data": attr.label_list(allow_files = True, doc = "External data of the model, or the other files of its folder."),
        "model": attr.label(allow_single_file = True, doc = ".onnx or .gguf file, or config.json of a folder.", mandatory = True),
        "out": attr.output(mandatory = True),
        "precision": attr.string(values = ["", "f32", "f16", "mixed"]),
        "profiles": attr.label_list(allow_files = [".toml"], doc = "Files of target profiles."),
        "targets": attr.string_list(doc = "Names of target profiles."),
    },
)

def drift_bundle(name, model, targets = [], out = None, args = [], **attributes):
    """Compiles a model into a bundle.

    Args:
      name: name of the target.
      model: label of an .onnx file, a .gguf file, or config.json of a Hugging Face folder.
      targets: names of target profiles; `profiles` has the labels of your own profiles.
      out: name of the bundle, by default NAME.drift.
      args: further arguments of `driftc compile`.
      **attributes: data, profiles, precision, compiler, and attributes that all rules have.
    """
    if not targets and not attributes.get("profiles"):
        fail("drift_bundle(%s): no target profile; add `targets` with names of `driftc targets list`" % name)
    _drift_bundle(
        name = name,
        model = model,
        targets = targets,
        out = out or name + ".drift",
        args_of_compile = args,
        **attributes
    )
