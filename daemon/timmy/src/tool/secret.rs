//! Where the user's programs keep tokens.
//!
//! Owns the list of such places: no tool reads them without leave, wherever the workspace is. Must
//! not know tools.

pub(crate) mod system;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agentd_base::settings;
use toml::Value;

/// Below the home.
const PLACES: &[&str] = &[
    // Keys, and stores of passwords.
    ".gnupg",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".password-store",
    ".pki",
    ".ssh",
    "Library/Keychains",
    // Programs of developers.
    ".bundle/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".gem/credentials",
    ".git-credentials",
    ".gitconfig",
    ".gradle/gradle.properties",
    ".m2/settings-security.xml",
    ".m2/settings.xml",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".nuget/NuGet/NuGet.Config",
    ".pgpass",
    ".pip/pip.conf",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    ".yarnrc.yml",
    // Clouds and clusters.
    ".aws",
    ".azure",
    ".docker/config.json",
    ".kube",
    ".oci",
    ".terraform.d/credentials.tfrc.json",
    // Agents.
    ".claude.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".hermes/.env",
    ".hermes/auth.json",
    ".openclaw",
    ".pi/agent/auth.json",
    // Browsers and mail.
    ".mozilla",
    ".thunderbird",
    "Library/Application Support/BraveSoftware",
    "Library/Application Support/Firefox",
    "Library/Application Support/Google/Chrome",
    "Library/Cookies",
    "snap/chromium",
    "snap/firefox",
];
/// Below the directory of configurations, which is `.config` unless `XDG_CONFIG_HOME` says where.
const CONFIGURED: &[&str] = &[
    "BraveSoftware",
    "chromium",
    "containers/auth.json",
    "doctl",
    "gcloud",
    "gh",
    "git/config",
    "git/credentials",
    "glab-cli",
    "google-chrome",
    "helm/registry",
    "hub",
    "microsoft-edge",
    "op",
    "pip/pip.conf",
    "rclone",
    "vivaldi",
];
/// Below the directory that `CARGO_HOME` names.
const OF_CARGO: &[&str] = &["credentials", "credentials.toml"];
/// Cargo stops at a configuration that it can't read, so that one is private only with a token in it.
const CARGO_CONFIGS: &[&str] = &["config", "config.toml"];
/// A key of a configuration with one of these in its name holds a secret.
const SECRET_NAMES: &[&str] = &["token", "password", "passwd", "secret", "api_key", "apikey"];

/// The places, and those that the configuration names, whether or not they are there.
pub(crate) fn places(
    home: Option<&Path>,
    environment: &[(OsString, OsString)],
    named: &[PathBuf],
) -> Vec<PathBuf> {
    let variable = |wanted: &str| {
        let found = environment.iter().find(|(name, _)| name == wanted);
        let dir = found.map(|(_, dir)| PathBuf::from(dir));
        dir.filter(|dir| dir.is_absolute())
    };
    let mut places = named.to_vec();
    let mut add = |dir: &Path, below: &[&str]| places.extend(below.iter().map(|at| dir.join(at)));
    let mut cargos: Vec<PathBuf> = variable("CARGO_HOME").into_iter().collect();
    if let Some(home) = home {
        add(home, PLACES);
        add(&home.join(".config"), CONFIGURED);
        cargos.push(home.join(".cargo"));
    }
    if let Some(dir) = variable("XDG_CONFIG_HOME") {
        add(&dir, CONFIGURED);
    }
    places.extend(variable("GNUPGHOME"));
    for cargo in cargos {
        places.extend(OF_CARGO.iter().map(|file| cargo.join(file)));
        let configs = CARGO_CONFIGS.iter().map(|file| cargo.join(file));
        places.extend(configs.filter(|file| has_token(file)));
    }
    places
}

/// Does this file of Cargo's have a token in it? What can't be read as one may have.
fn has_token(file: &Path) -> bool {
    match settings::read(file) {
        Ok(text) => text.parse::<toml::Table>().map_or(true, |table| {
            table.iter().any(|(name, value)| tells(name, value))
        }),
        Err(_) => true,
    }
}

/// Is a key's value a secret, or has it one in it?
fn tells(name: &str, value: &Value) -> bool {
    let lower = name.to_ascii_lowercase().replace('-', "_");
    let is_secret = SECRET_NAMES.iter().any(|secret| lower.contains(secret));
    match value {
        Value::Table(table) => table.iter().any(|(inner, value)| {
            // A variable of the environment may be a table with its value.
            tells(if is_secret { name } else { inner }, value)
        }),
        Value::Array(values) => values.iter().any(|value| tells(name, value)),
        // A password may be part of an address.
        Value::String(text) => is_secret || text.contains('@'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_places_follow_the_variables_that_move_them() {
        let environment = [
            ("XDG_CONFIG_HOME".into(), "/c".into()),
            ("CARGO_HOME".into(), "/cargo".into()),
            ("GNUPGHOME".into(), "relative".into()),
        ];
        let found = places(Some(Path::new("/h")), &environment, &["/own".into()]);
        for path in [
            "/own",
            "/h/.ssh",
            "/h/.config/gh",
            "/c/gh",
            "/cargo/credentials.toml",
            "/h/.cargo/credentials.toml",
        ] {
            assert!(found.contains(&path.into()), "{path}");
        }
        assert!(found.iter().all(|path| path.is_absolute()));
    }

    #[test]
    fn secret_in_cargos_configuration_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        assert!(!has_token(&file));
        for (text, has) in [
            ("[build]\njobs = 2\n[net]\noffline = true\n", false),
            (
                "[target.x86_64-unknown-linux-gnu]\nrustflags = ['-C', 'x']",
                false,
            ),
            ("[registries.own]\ntoken = 'x'", true),
            ("[registries.own]\nindex = 'sparse+https://u:p@host/'", true),
            ("[http]\nproxy = 'u:p@host:1'", true),
            ("[env]\nNPM_TOKEN = { value = 'x', force = true }", true),
            ("[env]\nNPM_TOKEN = 'x'", true),
            ("not toml", true),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(has_token(&file), has, "{text}");
        }
    }
}
