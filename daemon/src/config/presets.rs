//! The agents that people have: how each is run, what it may know, and where it keeps its login.
//!
//! Owns the facts about other people's programs, as data. Never runs anything, and never reads a
//! login: that its file is there is all. Of settings it looks whether they name another way to log
//! in, not which.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{AgentConfig, HostEnv};
use crate::adapter::{Kind, exec};
use crate::platform::files::Files;

/// A file of an agent's: a variable that moves its directory, the directory below the home, the file.
type SettingsFile = (&'static str, &'static str, &'static str);

/// How a login can be seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Login {
    /// Files that are there once somebody has logged in.
    files: &'static [SettingsFile],
    /// Variables that do instead, when the agent gets them.
    api_keys: &'static [&'static str],
    /// Settings which may name another way, and the words by which they do.
    settings: &'static [(SettingsFile, &'static [&'static str])],
    /// What it means that there is none of them.
    absence: Absence,
}

/// What a missing login means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Absence {
    /// Nobody is logged in.
    LoggedOut,
    /// The same, unless the configuration gives the agent variables: it takes keys of many names.
    UnlessGiven,
    /// Nothing: the agent has other places, such as the system's key ring.
    Unknown,
}

/// One agent that is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Preset {
    /// Its name, which is its program's, too.
    pub(super) name: &'static str,
    /// The wire of its long-lived form.
    pub(super) kind: Kind,
    /// The arguments of that form.
    pub(super) arguments: &'static [&'static str],
    /// A word that its help has when it has that form.
    pub(super) word: Option<&'static str>,
    /// What its version or its help says of itself, in small letters: one of these. A mere name is
    /// in the help of any program that has it.
    pub(super) signs: &'static [&'static str],
    /// The arguments of its exec form, for the kind `exec`.
    pub(super) exec_arguments: &'static [&'static str],
    /// What the exec form prints.
    pub(super) output: exec::Output,
    /// Variables that it gets besides those of its kind.
    passes: &'static [&'static str],
    login: Login,
}

const ELSEWHERE: Login = Login {
    files: &[],
    api_keys: &[],
    settings: &[],
    absence: Absence::Unknown,
};

/// Where exec forms take the prompt from standard input they do: arguments are for everybody
/// to see, and can't be longer than 128 KiB.
pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "pi",
        kind: Kind::Pi,
        arguments: &["--mode", "rpc"],
        word: Some("--mode"),
        signs: &["coding"],
        exec_arguments: &["--model={model}", "-p"],
        output: exec::Output::Text,
        passes: &[],
        login: Login {
            files: &[("PI_CODING_AGENT_DIR", ".pi/agent", "auth.json")],
            api_keys: &[],
            settings: &[
                // Models of the user's own, with their keys or without any.
                (("PI_CODING_AGENT_DIR", ".pi/agent", "models.json"), &[""]),
                (
                    ("PI_CODING_AGENT_DIR", ".pi/agent", "settings.json"),
                    &["extensions", "packages"],
                ),
            ],
            absence: Absence::UnlessGiven,
        },
    },
    Preset {
        name: "claude",
        kind: Kind::Claude,
        arguments: &[],
        word: Some("--input-format"),
        signs: &["claude code"],
        exec_arguments: &["-p", "--model={model}"],
        output: exec::Output::Text,
        passes: &[],
        login: Login {
            files: &[("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json")],
            api_keys: &[
                "ANTHROPIC_API_KEY",
                "ANTHROPIC_AUTH_TOKEN",
                "CLAUDE_CODE_OAUTH_TOKEN",
            ],
            settings: &[(
                ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
                &["apiKeyHelper", "ANTHROPIC_", "CLAUDE_CODE_USE_"],
            )],
            // macOS keeps it in the key chain.
            absence: if cfg!(target_os = "macos") {
                Absence::Unknown
            } else {
                Absence::LoggedOut
            },
        },
    },
    Preset {
        name: "codex",
        kind: Kind::Codex,
        arguments: &["app-server"],
        word: Some("app-server"),
        signs: &["codex-cli", "codex cli"],
        // It prints the answer alone; sessions start outside of repositories, too.
        exec_arguments: &["exec", "--skip-git-repo-check", "--model={model}", "-"],
        output: exec::Output::Text,
        passes: &[],
        login: Login {
            files: &[("CODEX_HOME", ".codex", "auth.json")],
            // Its app-server takes no key from the environment: `codex login --with-api-key` does.
            api_keys: &[],
            settings: &[(
                ("CODEX_HOME", ".codex", "config.toml"),
                &["model_provider", "cli_auth_credentials_store"],
            )],
            absence: Absence::LoggedOut,
        },
    },
    Preset {
        name: "gemini",
        kind: Kind::Acp,
        // Before it was `--experimental-acp`.
        arguments: &["--acp"],
        word: Some("--acp"),
        signs: &["gemini cli"],
        exec_arguments: &["--model={model}", "--prompt={prompt}"],
        output: exec::Output::Text,
        passes: &[
            "GEMINI_API_KEY",
            "GEMINI_CLI_HOME",
            "GEMINI_MODEL",
            "GOOGLE_API_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ],
        login: Login {
            files: &[("GEMINI_CLI_HOME", "", ".gemini/oauth_creds.json")],
            api_keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            settings: &[],
            // Its own `.env` files hold a key, too, and Vertex has other ways.
            absence: Absence::Unknown,
        },
    },
    Preset {
        name: "opencode",
        kind: Kind::Acp,
        arguments: &["acp"],
        word: Some("acp"),
        signs: &["agent client protocol", "opencode run"],
        exec_arguments: &["run", "--model={model}", "--", "{prompt}"],
        output: exec::Output::Text,
        passes: &["OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"],
        login: Login {
            files: &[("XDG_DATA_HOME", ".local/share", "opencode/auth.json")],
            api_keys: &[],
            settings: &[
                (
                    ("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"),
                    &["provider"],
                ),
                (
                    ("XDG_CONFIG_HOME", ".config", "opencode/opencode.jsonc"),
                    &["provider"],
                ),
            ],
            absence: Absence::LoggedOut,
        },
    },
    Preset {
        name: "goose",
        kind: Kind::Acp,
        arguments: &["acp"],
        word: Some("acp"),
        signs: &["ai agent", "acp agent", "goose settings"],
        exec_arguments: &[
            "run",
            "--no-session",
            "--quiet",
            "--model={model}",
            "--text={prompt}",
        ],
        output: exec::Output::Text,
        passes: &["GOOSE_MODEL", "GOOSE_PROVIDER"],
        login: ELSEWHERE,
    },
    Preset {
        name: "hermes",
        kind: Kind::Acp,
        arguments: &["acp"],
        word: Some("acp"),
        signs: &["hermes agent"],
        exec_arguments: &["--model={model}", "-z", "{prompt}"],
        output: exec::Output::Text,
        passes: &["HERMES_HOME"],
        login: Login {
            files: &[("HERMES_HOME", ".hermes", "auth.json")],
            ..ELSEWHERE
        },
    },
    Preset {
        name: "openclaw",
        // Its long-lived form is a gateway of its own, which this command asks.
        kind: Kind::Exec,
        arguments: OPENCLAW,
        word: None,
        signs: &["openclaw"],
        exec_arguments: OPENCLAW,
        output: exec::Output::Openclaw,
        passes: &[
            "OPENCLAW_CONFIG_PATH",
            "OPENCLAW_GATEWAY_TOKEN",
            "OPENCLAW_STATE_DIR",
        ],
        login: ELSEWHERE,
    },
];

/// The agent that comes with agentd. It isn't looked for: it is there.
const TIMMY: Preset = Preset {
    name: "timmy",
    kind: Kind::Jsonl,
    arguments: &["--rpc"],
    word: None,
    signs: &["timmy"],
    exec_arguments: &["-p", "{prompt}"],
    output: exec::Output::Text,
    passes: KEYS_OF_PROVIDERS,
    login: Login {
        files: &[],
        api_keys: KEYS_OF_PROVIDERS,
        settings: &[],
        // A local server of models needs no key.
        absence: Absence::Unknown,
    },
};

/// The variables by which providers of models are reached. Other agents get those of their own
/// provider only.
pub(super) const KEYS_OF_PROVIDERS: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GLM_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "KIMI_API_KEY",
    "KIMI_CODING_API_KEY",
    "LLAMA_API_KEY",
    "LLAMA_BASE_URL",
    "LM_API_KEY",
    "LM_BASE_URL",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OLLAMA_API_KEY",
    "OLLAMA_HOST",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
    "ZAI_API_KEY",
    "Z_AI_API_KEY",
];

const OPENCLAW: &[&str] = &[
    "agent",
    "--json",
    "--session-id",
    "{session}",
    "--model={model}",
    "--message",
    "{prompt}",
];

/// Directories below the home where installers put programs, which a service's PATH lacks.
pub(super) const BELOW_HOME: &[(&str, &str)] = &[
    (
        ".local/bin",
        "pip, uv, and the installers of claude, hermes and goose",
    ),
    (".claude/local", "claude after its own migration from npm"),
    (".opencode/bin", "the installer of opencode"),
    (".npm-global/bin", "npm with the prefix its manual advises"),
    (".npm-packages/bin", "the other usual prefix of npm"),
    (".bun/bin", "bun"),
    (".deno/bin", "deno"),
    (".volta/bin", "volta, which manages node"),
    (".local/share/pnpm", "pnpm on Linux"),
    ("Library/pnpm", "pnpm on macOS"),
    (".local/share/mise/shims", "mise"),
    (".asdf/shims", "asdf"),
    (".cargo/bin", "cargo"),
    ("go/bin", "go"),
    ("bin", "people"),
];
/// The same for the whole machine.
pub(super) const OF_THE_MACHINE: &[(&str, &str)] = &[
    ("/usr/local/bin", "npm as root, and people"),
    ("/opt/homebrew/bin", "Homebrew on Apple's processors"),
    ("/snap/bin", "snap"),
];
/// nvm keeps a directory for each version of node, below the home.
const NVM: &str = ".nvm/versions/node";

/// Where programs usually are, whatever PATH says: the home's first.
pub(super) fn places(home: Option<&Path>, files: &Files) -> Vec<PathBuf> {
    let is_dir = |dir: &PathBuf| files.at(dir).is_ok_and(|found| found.is_dir());
    let mut places = Vec::new();
    if let Some(home) = home.filter(|home| home.is_absolute()) {
        places.extend(BELOW_HOME.iter().map(|(dir, _who)| home.join(dir)));
        // Listed here, once it has answered.
        let nvm = Some(home.join(NVM)).filter(is_dir);
        let versions = nvm.and_then(|nvm| std::fs::read_dir(nvm).ok());
        let mut of_nvm: Vec<PathBuf> = (versions.into_iter().flatten())
            .filter_map(|version| Some(version.ok()?.path().join("bin")))
            .collect();
        of_nvm.sort_by_key(|bin| std::cmp::Reverse(version_of(bin)));
        places.extend(of_nvm);
    }
    places.extend(OF_THE_MACHINE.iter().map(|(dir, _who)| PathBuf::from(dir)));
    // Few are there, and each is looked into for every agent that is missing.
    places.retain(is_dir);
    places
}

/// The numbers in the version that a directory of nvm is for: `v22.14.0/bin`.
fn version_of(bin: &Path) -> Vec<u64> {
    let version = bin.parent().and_then(Path::file_name).unwrap_or_default();
    let version = version.to_string_lossy();
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The preset of this name.
pub(super) fn named(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The preset whose program a command runs.
pub(super) fn of_program(program: &str) -> Option<&'static Preset> {
    let name = Path::new(program).file_name()?.to_str()?;
    named(name).or_else(|| (name == TIMMY.name).then_some(&TIMMY))
}

/// What a command of somebody's own prints, where its program says so by a preset: with `--json` the
/// text is in an object.
pub(super) fn output_of(kind: Kind, command: &[String]) -> Option<exec::Output> {
    let preset = of_program(command.first()?).filter(|preset| preset.kind == kind)?;
    let json = command.iter().any(|argument| argument == "--json");
    json.then_some(preset.output)
}

/// Is it the agent that comes with agentd, which reads the same configuration?
#[must_use]
pub fn is_built_in(agent: &AgentConfig) -> bool {
    let preset = agent
        .command
        .first()
        .and_then(|program| of_program(program));
    agent.kind == TIMMY.kind && preset.is_some_and(|preset| preset.name == TIMMY.name)
}

/// The variables that an agent gets by default: those of its kind and of its program, and never
/// those of another.
#[must_use]
pub fn passes(agent: &AgentConfig) -> Vec<&'static str> {
    let program = agent.command.first();
    let preset = program.and_then(|program| of_program(program));
    let (own, of_its_kind) = match preset {
        Some(preset) if preset.kind == agent.kind => (preset.passes, &[][..]),
        Some(preset) => (preset.passes, preset.kind.passes()),
        None => (&[][..], &[][..]),
    };
    [agent.kind.passes(), of_its_kind, own].concat()
}

/// Does running the program with `--version` say its version, and do nothing else? That is known
/// of the programs that are looked for; any other may do what it likes with an argument.
#[must_use]
pub fn tells_version(program: &str) -> bool {
    // The built-in agent's is this program's.
    let looked_for = of_program(program).is_some_and(|preset| preset.name != TIMMY.name);
    Path::new(program).is_absolute() && looked_for
}

/// A word that the help of this program has when it has its long-lived form.
#[must_use]
pub fn long_lived_word(program: &str) -> Option<&'static str> {
    of_program(program)?.word
}

/// Is what a program says of itself what the agent of its name says?
#[must_use]
pub fn is_its_own(program: &str, says: &str) -> bool {
    let says = says.to_lowercase();
    let signs = of_program(program).map_or(&[][..], |preset| preset.signs);
    signs.is_empty() || signs.iter().any(|sign| says.contains(sign))
}

/// Why this agent isn't what its program's name says, when that has these words for itself. What
/// somebody runs in another way than the agent of that name isn't meant to be it.
#[must_use]
pub fn why_another(agent: &AgentConfig, words: &str) -> Option<String> {
    let (program, arguments) = agent.command.split_first()?;
    let preset = of_program(program)?;
    let is_long = agent.kind == preset.kind && arguments == preset.arguments;
    let is_exec_form = agent.kind == Kind::Exec && arguments == preset.exec_arguments;
    let meant = is_long || is_exec_form;
    meant.then(|| {
        format!(
            "`{program}` is another program than the agent `{}`; it says: {words}",
            preset.name
        )
    })
}

/// Bytes of a file of credentials that holds none.
const EMPTY: u64 = 4;

/// As much of an agent's settings is looked through, in bytes.
const SETTINGS: usize = 1024 * 1024;

/// Is somebody logged in, as far as a look at a file's existence says? `value` gives the variables
/// of the agent.
#[must_use]
pub fn logged_in(
    agent: &AgentConfig,
    home: Option<&Path>,
    value: &dyn Fn(&str) -> Option<String>,
    files: &Files,
) -> Option<bool> {
    let login = of_program(agent.command.first()?)?.login;
    let set = |name: &str| value(name).filter(|value| !value.is_empty());
    // `Some` of what could not be read or seen, too.
    let found = |(variable, dir, file): SettingsFile, head| {
        let moved = set(variable).map(PathBuf::from);
        let dir = moved.or_else(|| Some(home?.join(dir)))?;
        match files.look(&dir.join(file), head) {
            Ok(found) if !found.is_file() => None,
            Err(absent)
                if matches!(
                    absent.error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory
                ) =>
            {
                None
            }
            found => Some(found),
        }
    };
    let mut silent = false;
    for place in login.files {
        match found(*place, 0) {
            // pi makes one that holds `{}` when it is asked for its version.
            Some(Ok(file)) if file.size > EMPTY => return Some(true),
            Some(Err(absent)) => silent |= absent.is_silent(),
            _ => {}
        }
    }
    // Codex takes a key for one turn, and none for its long-lived form.
    let is_exec = agent.kind == Kind::Exec && set("CODEX_API_KEY").is_some();
    if is_exec || login.api_keys.iter().any(|key| set(key).is_some()) {
        return Some(true);
    }
    let says = |words: &[&str], text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        words.iter().any(|word| text.contains(word))
    };
    let mut settings = login.settings.iter();
    let elsewhere = settings.any(|(place, words)| match found(*place, SETTINGS) {
        Some(Ok(file)) => says(words, &file.head),
        Some(Err(_unread)) => true,
        None => false,
    });
    let tells = match login.absence {
        Absence::LoggedOut => true,
        Absence::UnlessGiven => agent.pass_env.is_empty() && agent.env.is_empty(),
        Absence::Unknown => false,
    };
    (tells && !elsewhere && !silent).then_some(false)
}

/// Variables that say where opencode keeps its login and its configuration.
pub(super) const MOVE: &[&str] = &[
    "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];

/// Would this agent, found and not configured, choose a model that nobody chose?
///
/// Without a key and a configuration of its own, opencode sends prompts to a hosted model.
pub(super) fn chooses_for_itself(preset: &Preset, look: &HostEnv) -> bool {
    let named = |name: &str| look.variables.get(name).cloned();
    let below = |name: &str, dir: &str| {
        let usual = || Some(look.home.as_ref()?.join(dir));
        named(name).or_else(usual).map(|dir| dir.join("opencode"))
    };
    let login = below("XDG_DATA_HOME", ".local/share").map(|dir| dir.join("auth.json"));
    let dirs = [
        below("XDG_CONFIG_HOME", ".config"),
        named("OPENCODE_CONFIG_DIR"),
    ];
    let files = ["opencode.json", "opencode.jsonc", "config.json"];
    let own = dirs.into_iter().flatten();
    let mut own = own
        .flat_map(|dir| files.map(|file| dir.join(file)))
        .chain(login)
        .chain(named("OPENCODE_CONFIG"));
    preset.name == "opencode"
        && !own.any(|file| look.files.at(&file).is_ok_and(|found| found.is_file()))
}
