//! Environment variables that driftc reads. Every variable is listed here once, for the manual pages.

use std::ffi::OsString;
use std::path::PathBuf;

/// Environment variable with its effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// Effect of the variable, as a sentence of the manual page.
    pub(crate) about: &'static str,
}

/// Colors of error messages.
pub(crate) const NO_COLOR: Variable =
    Variable { name: "NO_COLOR", about: "Print error messages without colors if this variable is set." };
/// Validation of SPIR-V modules.
pub(crate) const VALIDATE: Variable = Variable {
    name: "DRIFT_VALIDATE",
    about: "Validate every SPIR-V module with spirv-val, also if driftc was built without SPIRV-Tools.",
};
/// Cache folder of the user.
pub(crate) const CACHE_HOME: Variable = Variable {
    name: "XDG_CACHE_HOME",
    about: "Cache folder of the user. Compiled models are in its subfolder driftc.",
};
/// Cache folder of the user on Windows.
pub(crate) const LOCAL_APP_DATA: Variable =
    Variable { name: "LOCALAPPDATA", about: "Cache folder of the user if XDG_CACHE_HOME is not set." };
/// Home folder of the user.
pub(crate) const HOME: Variable = Variable {
    name: "HOME",
    about: "Home folder, whose subfolder .cache is the cache folder if no other variable names one.",
};
/// Format of errors, for programs that run driftc. The JSON object has `error` (the message), `reasons` and `help`.
pub(crate) const ERRORS: Variable = Variable {
    name: "DRIFT_ERRORS",
    about: "With the value json, write an error as a JSON object in the last line of standard error.",
};
/// Folder of drivers that need no GPU.
pub(crate) const DRIVERS: Variable = Variable {
    name: "DRIFT_DRIVERS",
    about: "Folder that make drivers filled, for driftc audit (default: target/drivers).",
};
/// API key of the server.
pub(crate) const API_KEY: Variable = Variable {
    name: "DRIFTC_API_KEY",
    about: "API key of driftc serve. Option --api-key overrides the variable.",
};
/// Cache of bundles that machines share.
pub(crate) const SHARED_CACHE: Variable = Variable {
    name: "DRIFT_SHARED_CACHE",
    about: "URL of the cache that driftc build shares with other machines. Option --shared-cache overrides the variable.",
};
/// Password of secret keys.
pub(crate) const KEY_PASSWORD: Variable = Variable {
    name: "DRIFTC_KEY_PASSWORD",
    about: "Password of the secret key for driftc keygen, driftc sign and option --sign, instead of a prompt.",
};
/// Device selection. The runtime reads this variable.
const DEVICE: Variable = Variable {
    name: "DRIFT_DEVICE",
    about: "Use this device, by number or part of its name. Option --device overrides the variable.",
};

/// All variables, in the order of the manual pages.
pub(crate) const VARIABLES: &[Variable] = &[
    DEVICE,
    CACHE_HOME,
    LOCAL_APP_DATA,
    HOME,
    NO_COLOR,
    ERRORS,
    VALIDATE,
    DRIVERS,
    API_KEY,
    KEY_PASSWORD,
    SHARED_CACHE,
];

impl Variable {
    /// Value of the variable. `None` if the variable is not set.
    pub(crate) fn value(self) -> Option<OsString> {
        std::env::var_os(self.name)
    }

    /// Value of the variable as an absolute path. `None` if it is not set or a relative path.
    pub(crate) fn absolute_path(self) -> Option<PathBuf> {
        self.value().map(PathBuf::from).filter(|path| path.is_absolute())
    }
}
