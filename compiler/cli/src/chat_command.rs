//! Commands of `driftc chat`, such as `/reset`.

use std::path::PathBuf;

/// Command of a chat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChatCommand {
    /// Print the list of commands.
    Help,
    /// Save the conversation to a file.
    Save(PathBuf),
    /// Replace the conversation by a saved one.
    Load(PathBuf),
    /// Generate the last answer again.
    Regenerate,
    /// Set the system message, or remove it.
    System(Option<String>),
    /// Remove all messages except the system message.
    Reset,
    /// End the program.
    Exit,
}

/// Name of a command, its argument and its description.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "list the commands"),
    ("/save", "FILE", "save the conversation as JSON"),
    ("/load", "FILE", "replace the conversation by a saved one"),
    ("/regen", "", "generate the last answer again"),
    ("/system", "TEXT", "set the system message; without TEXT, remove it"),
    ("/reset", "", "start a new conversation with the same system message"),
    ("/exit", "", "quit; Ctrl-D and Ctrl-C quit too"),
];

/// Minimum similarity of a name to a command that the error suggests, from 0 to 1.
const SIMILAR: f64 = 0.7;

/// Returns the names of the commands that start with `start`.
pub(crate) fn names_from(start: &str) -> Vec<String> {
    let names = COMMANDS.iter().map(|(name, _, _)| *name);
    names.filter(|name| name.starts_with(start)).map(str::to_owned).collect()
}

/// Returns the lines of the help text.
pub(crate) fn help() -> String {
    let line = |(name, argument, about): &(&str, &str, &str)| {
        format!("  {:14}{about}\n", format!("{name} {argument}"))
    };
    let keys = "  a line that ends with \\ continues on the next line; Ctrl-C stops an answer\n";
    COMMANDS.iter().map(line).chain([keys.to_owned()]).collect()
}

impl ChatCommand {
    /// Parses a line of the user. Returns `None` if the line is a message.
    ///
    /// # Errors
    /// A sentence about an unknown command, or about a missing or superfluous argument.
    pub(crate) fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim();
        if !line.starts_with('/') {
            return None;
        }
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        let file = || {
            let path = argument.map(PathBuf::from);
            path.ok_or_else(|| format!("{name} needs the name of a file: {name} FILE"))
        };
        let alone = |command| match argument {
            None => Ok(command),
            Some(argument) => Err(format!("{name} takes no argument, but got `{argument}`")),
        };
        Some(match name {
            "/help" => alone(Self::Help),
            "/save" => file().map(Self::Save),
            "/load" => file().map(Self::Load),
            "/regen" => alone(Self::Regenerate),
            "/system" => Ok(Self::System(argument.map(str::to_owned))),
            "/reset" => alone(Self::Reset),
            "/exit" => alone(Self::Exit),
            other => Err(unknown(other)),
        })
    }
}

/// Returns the error of an unknown command, with the most similar command if there is one.
fn unknown(name: &str) -> String {
    let names = COMMANDS.iter().map(|(known, _, _)| (strsim::jaro_winkler(known, name), *known));
    let similar = names.filter(|(similarity, _)| *similarity > SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0));
    match similar {
        Some((_, known)) => format!("there is no command {name}; did you mean {known}?"),
        None => format!("there is no command {name}; /help lists the commands"),
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, ChatCommand, help, names_from};

    #[test]
    fn every_listed_command_is_known() {
        for (name, argument, _) in COMMANDS {
            let parsed = ChatCommand::parse(&format!("  {name} {argument}\t")).unwrap();
            assert!(parsed.is_ok(), "{name}: {parsed:?}");
            assert!(help().contains(name));
        }
        assert_eq!(names_from("/re"), ["/regen", "/reset"]);
    }

    #[test]
    fn arguments_follow_the_name() {
        let parsed = |line: &str| ChatCommand::parse(line).unwrap();
        assert_eq!(parsed("/save  my file.json "), Ok(ChatCommand::Save("my file.json".into())));
        assert_eq!(parsed("/system Be\nbrief."), Ok(ChatCommand::System(Some("Be\nbrief.".to_owned()))));
        assert_eq!(parsed("/system"), Ok(ChatCommand::System(None)));
        assert!(parsed("/load").unwrap_err().contains("/load FILE"));
        assert!(parsed("/reset all").unwrap_err().contains("`all`"));
        assert_eq!(ChatCommand::parse("what is /reset"), None);
    }

    #[test]
    fn errors_suggest_a_similar_command() {
        let error = |line: &str| ChatCommand::parse(line).unwrap().unwrap_err();
        assert!(error("/rset").contains("did you mean /reset?"));
        assert!(error("/regenerate").contains("did you mean /regen?"));
        assert!(error("/HELP").contains("/help lists"), "{}", error("/HELP"));
        assert!(error("/42").contains("/help lists"));
    }
}
