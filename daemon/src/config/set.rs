//! Changes of any value of `config.toml`, and of the whole file.
//!
//! Owns where a value goes in the text, so that comments and order stay. Nothing is written that
//! could not be read at a start. Agents that come and go are `edit`'s.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use toml_edit::{DocumentMut, Item, Key, Table, TableLike, Value};

use super::edit::{EditError, put, refused, rewrite, set_top, trailing};
use super::{Config, ConfigError, HostEnv, check_default};
use agentd_base::settings;

/// What is done to the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// A value, as TOML or as a plain word.
    Set {
        /// Its dotted key.
        key: String,
        /// What it is to be.
        value: String,
    },
    /// The value, or the table, is the default again.
    Unset {
        /// Its dotted key.
        key: String,
    },
    /// The whole text, which somebody wrote from this one.
    Replace {
        /// The text then.
        before: String,
        /// The text now.
        text: String,
    },
}

/// Whether the built-in agent can read what a text says to it: the daemon doesn't know how.
pub type Judge<'a> = &'a dyn Fn(&str) -> Result<(), ConfigError>;

/// Changes the file, or leaves it as it is; a missing one is an empty one.
///
/// # Errors
/// When the result can't be read, by the built-in agent either, or the disk says no.
pub fn edit(file: &Path, look: &HostEnv, edit: &Edit, judge: Judge<'_>) -> Result<(), EditError> {
    rewrite(file, || {
        let text = settings::read(file).map_err(|source| ConfigError::Io {
            file: file.to_owned(),
            source,
        })?;
        edited(&text, file, look, edit, judge)
    })
}

/// The text that comes of it.
pub(super) fn edited(
    text: &str,
    file: &Path,
    look: &HostEnv,
    edit: &Edit,
    judge: Judge<'_>,
) -> Result<String, EditError> {
    // What was wrong before is no fault of a change of something else.
    let before = Config::parse(text, file, look);
    let of_timmy = before.as_ref().map(|before| &before.of_timmy);
    let fits = |fresh: String| {
        let config = Config::parse(&fresh, file, look)?;
        check_default(&config, file, look).map_err(|no| {
            let hint = "`agentctl agents` lists them".to_owned();
            refused(no.to_string(), hint)
        })?;
        if of_timmy.ok() != Some(&config.of_timmy) {
            judge(&fresh)?;
        }
        Ok(fresh)
    };
    match edit {
        Edit::Replace { before, text: new } => {
            if before != text {
                let what = format!(
                    "`{}` was changed by somebody else meanwhile",
                    file.display()
                );
                return Err(refused(what, "bring both together, and ask again"));
            }
            fits(new.clone())
        }
        Edit::Unset { key } => {
            let mut document = document(text, file)?;
            let path = path_of(key)?;
            if !remove(document.as_table_mut(), &path) {
                let what = format!("`{key}` is not set in `{}`", file.display());
                return Err(refused(what, "`agentctl config show` lists what is"));
            }
            fits(document.to_string())
        }
        Edit::Set { key, value } => {
            let path = path_of(key)?;
            // A word that is no TOML is meant as a string, and so is a number where one belongs.
            let meant = Value::from_str(value.trim()).ok();
            let word = Value::from(value.as_str());
            // And one word is a list where a list belongs.
            let list = Value::from_iter([value.as_str()]);
            let mut readings = meant.into_iter().chain([word, list]);
            let mut first: Option<EditError> = None;
            loop {
                let Some(reading) = readings.next() else {
                    let first = first.unwrap_or_else(|| refused("there is no value", "give one"));
                    let was = before.map(drop).and_then(|()| judge(text)).err();
                    return Err(of_file(first, was));
                };
                let fresh = with(document(text, file)?, &path, key, bare(reading))?;
                match fits(fresh) {
                    Ok(fresh) => return Ok(fresh),
                    Err(error) => {
                        let is_list = |error: &EditError| {
                            let error = error.to_string();
                            LIST.iter().any(|words| error.contains(words))
                        };
                        first = first
                            .filter(|first| !is_list(first) || is_list(&error))
                            .or(Some(of_command(error)));
                    }
                }
            }
        }
    }
}

/// What the readers, timmy's and ours, say of a word where a list belongs.
const LIST: &[&str] = &["expected a sequence", "expected an array of strings"];

/// Of a line that isn't in the file: its number says nothing.
fn of_command(error: EditError) -> EditError {
    match error {
        EditError::Broken(ConfigError::Wrong { what, hint, .. }) => {
            let usual = || "`agentctl config show` lists the keys and their values".to_owned();
            refused(what, hint.unwrap_or_else(usual))
        }
        error => error,
    }
}

/// The fault of a command, unless it was there before: then it is the file's, where it can be found.
fn of_file(error: EditError, was: Option<ConfigError>) -> EditError {
    match (&error, was) {
        (EditError::Refused { what: now, .. }, Some(was)) if matches!(&was, ConfigError::Wrong { what, .. } if what == now) => {
            EditError::Broken(was)
        }
        _ => error,
    }
}

/// Without the spaces and comments that it was typed with.
fn bare(mut value: Value) -> Value {
    value.decor_mut().clear();
    value
}

fn document(text: &str, file: &Path) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let line = error.span().map_or(1, |span| {
            1 + text[..span.start.min(text.len())].matches('\n').count()
        });
        EditError::Broken(ConfigError::Wrong {
            file: PathBuf::from(file),
            line,
            what: error.message().to_owned(),
            hint: Some("`agentctl config edit` opens it".to_owned()),
        })
    })
}

fn path_of(key: &str) -> Result<Vec<Key>, EditError> {
    Key::parse(key).map_err(|_| {
        let what = format!("`{key}` is no key");
        refused(what, "keys are written as in `agents.pi.model`")
    })
}

/// The text with a value more, or another one.
fn with(
    mut document: DocumentMut,
    path: &[Key],
    key: &str,
    value: Value,
) -> Result<String, EditError> {
    let Some((last, above)) = path.split_last() else {
        return Err(refused(
            "there is no key",
            "name one, as in `agents.pi.model`",
        ));
    };
    if above.is_empty() {
        return Ok(set_top(&mut document, last.get(), value));
    }
    // Below everything; the words at the end of the file are about what is above them.
    let end = trailing(&document).trim_end().to_owned();
    let prefix = match (end.is_empty(), document.is_empty()) {
        (true, true) => String::new(),
        (true, false) => "\n".to_owned(),
        (false, _) => format!("{end}\n\n"),
    };
    let mut made = false;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, part) in above.iter().enumerate() {
        if !table.contains_key(part.get()) {
            let mut fresh = Table::new();
            if depth + 1 == above.len() {
                fresh.decor_mut().set_prefix(&prefix);
                fresh.set_position(Some(isize::MAX));
                made = true;
            } else {
                fresh.set_implicit(true);
            }
            table.insert(part.get(), Item::Table(fresh));
        }
        let inner = table.get_mut(part.get()).and_then(Item::as_table_like_mut);
        table = inner.ok_or_else(|| {
            let part = part.get();
            refused(
                format!("`{part}` in `{key}` is no table"),
                "name a key of a table",
            )
        })?;
    }
    match table.get_mut(last.get()).and_then(Item::as_value_mut) {
        Some(old) => put(old, value),
        None => {
            table.insert(last.get(), Item::Value(value));
        }
    }
    if made && !end.is_empty() {
        document.set_trailing("");
    }
    Ok(document.to_string())
}

fn remove(table: &mut dyn TableLike, path: &[Key]) -> bool {
    match path {
        [] => false,
        [last] => table.remove(last.get()).is_some(),
        [first, rest @ ..] => table
            .get_mut(first.get())
            .and_then(Item::as_table_like_mut)
            .is_some_and(|inner| remove(inner, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "\
# Mine.

[agents.a] # here
kind = \"exec\"
command = [\"/bin/a\"] # its program
# the end
";

    fn after(text: &str, edit: &Edit) -> Result<String, String> {
        let done = edited(
            text,
            "/c/config.toml".as_ref(),
            &HostEnv::default(),
            edit,
            &|_| Ok(()),
        );
        done.map_err(|error| error.to_string())
    }

    fn set(text: &str, key: &str, value: &str) -> Result<String, String> {
        let (key, value) = (key.to_owned(), value.to_owned());
        after(text, &Edit::Set { key, value })
    }

    #[test]
    fn set_keeps_comments_and_order() {
        assert_eq!(
            set(WRITTEN, "agents.a.warm", "2").unwrap(),
            WRITTEN.replace("# its program\n", "# its program\nwarm = 2\n")
        );
        assert_eq!(
            set(WRITTEN, "agents.a.command", "[\"/bin/b\"]").unwrap(),
            WRITTEN.replace("/bin/a", "/bin/b")
        );
        assert_eq!(
            set(WRITTEN, "client.start", "never").unwrap(),
            format!("{WRITTEN}\n[client]\nstart = \"never\"\n")
        );
        assert_eq!(
            set(WRITTEN, "default_agent", "a").unwrap(),
            WRITTEN.replace("# Mine.\n", "# Mine.\ndefault_agent = \"a\"\n")
        );
        assert_eq!(
            set("", "client.start", "'always'").unwrap(),
            "[client]\nstart = 'always'\n"
        );
        assert_eq!(
            set("client = {}\n", "client.start", "ask").unwrap(),
            "client = { start = \"ask\" }\n"
        );
    }

    #[test]
    fn set_takes_words_and_numbers_where_they_belong() {
        // A model may be called like a number, and a number may be meant.
        let model = set(WRITTEN, "agents.a.model", "4").unwrap();
        assert!(model.contains("model = \"4\"\n"), "{model}");
        for (key, value, why) in [
            ("agents.a.warm", "many", "a whole number from 0 to 16"),
            (
                "agents.a.kind.x",
                "1",
                "`kind` in `agents.a.kind.x` is no table",
            ),
            (
                "client.start",
                "soon",
                "expected \"ask\", \"always\" or \"never\"",
            ),
            ("default_agent", "b", "which is no agent"),
            ("retentoin.days", "1", "unknown key `retentoin`"),
            ("a..b", "1", "`a..b` is no key"),
        ] {
            let told = set(WRITTEN, key, value).unwrap_err();
            assert!(told.contains(why) && told.contains("hint: "), "{told}");
        }
    }

    #[test]
    fn set_takes_one_word_for_a_list() {
        let set = set(WRITTEN, "agents.a.pass_env", "HTTPS_PROXY").unwrap();
        assert!(set.contains("pass_env = [\"HTTPS_PROXY\"]\n"), "{set}");
    }

    #[test]
    fn unset_and_replace_leave_what_can_be_read() {
        let unset = |key: &str| {
            let key = key.to_owned();
            after(WRITTEN, &Edit::Unset { key })
        };
        assert!(
            unset("agents.a.command")
                .unwrap_err()
                .contains("no `command`")
        );
        assert!(unset("agents.a.model").unwrap_err().contains("is not set"));
        let replace = |before: &str, text: &str| {
            let (before, text) = (before.to_owned(), text.to_owned());
            after(WRITTEN, &Edit::Replace { before, text })
        };
        assert_eq!(replace(WRITTEN, "# new\n").unwrap(), "# new\n");
        assert!(replace("", "# new\n").unwrap_err().contains("meanwhile"));
        let broken = replace(WRITTEN, "\nx = 1\n").unwrap_err();
        assert!(
            broken.starts_with("/c/config.toml:2: unknown key `x`"),
            "{broken}"
        );
    }
}
