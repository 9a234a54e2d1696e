//! Which files tools may touch without asking, and how they get at them.
//!
//! Owns the roots, what is private within them, and the way from a path of a model's to an open
//! directory: whatever is done is done beneath that, without following a link. Must not know what
//! a tool does with a file.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use agentd_client::places::{Environment, System};
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _};

use super::Surroundings;
use super::anchor::{Anchor, Lost, settle};
use super::question::Question;
use super::sandbox::Landlock;
use super::secret;
use crate::config::{Timmy, Unsandboxed};

/// The kernel's own: what is read there is about processes and devices, never about work.
const KERNEL: &[&str] = &["/proc", "/sys", "/dev", "/run"];
/// What is beside the configuration and isn't work: keys, secrets of webhooks, and what timmy is told.
const BESIDE: [&str; 3] = ["env", "webhooks.json", "timmy"];
/// How far above a directory a repository's root is looked for.
const MOST_PARENTS: usize = 32;
/// Where the session's temporary files are, within its directory.
const TEMPORARY: &str = "tmp";

/// What is allowed without asking, and what never is.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The user's home.
    pub(crate) home: Option<PathBuf>,
    /// What belongs to agentd: its configuration, keys, state and socket.
    pub(crate) private: Vec<PathBuf>,
    /// Where programs keep tokens, the user's and the system's: not even read without leave.
    pub(crate) secret: SecretPlaces,
    /// Where programs are looked for, by us and by agentd: in a workspace they may be run, and not
    /// replaced, or a command could plant what runs later without a sandbox.
    pub(crate) programs: Vec<PathBuf>,
    /// Directories that may be written besides the workspace.
    pub(crate) writable: Vec<PathBuf>,
    /// How much of landlock confines commands.
    pub(crate) landlock: Landlock,
    /// May commands use the network?
    pub(crate) network: bool,
    /// What happens to commands where there is no sandbox?
    pub(crate) unsandboxed: Unsandboxed,
    /// This program, which starts itself to keep commands.
    pub(crate) program: PathBuf,
    /// The environment that commands are given a part of.
    pub(crate) environment: Arc<[(OsString, OsString)]>,
}

impl Rules {
    /// The rules of this process.
    ///
    /// # Errors
    /// When this program can't be found.
    pub(crate) fn of_process(config: &Timmy) -> io::Result<Self> {
        let environment: Arc<[_]> = std::env::vars_os().collect();
        let places = Environment::of_process();
        let named = std::env::var_os("AGENTD_CONFIG").map(PathBuf::from);
        let mut private = vec![places.default_socket()];
        private.extend(places.agentd_socket.clone());
        private.extend(places.state_dir());
        let usual = places.home.as_deref().map(|home| match places.system {
            System::MacOs => home.join("Library/Application Support/agentd"),
            System::Linux => std::env::var_os("XDG_CONFIG_HOME")
                .map(PathBuf::from)
                .filter(|dir| dir.is_absolute())
                .unwrap_or_else(|| home.join(".config"))
                .join("agentd"),
        });
        if let Some(dir) = usual {
            // Each may be a link into a collection of such files.
            private.extend(BESIDE.map(|file| dir.join(file)));
            private.push(dir.join("config.toml"));
            private.push(dir);
        }
        if let Some(file) = named {
            // Its directory may be anybody's; the keys are beside it, and what timmy is told.
            private.extend(BESIDE.map(|name| file.with_file_name(name)));
            private.push(file);
        }
        // The program that runs, even when another one has taken its place meanwhile.
        let itself = Path::new("/proc/self/exe");
        let program = if itself.exists() {
            itself.to_owned()
        } else {
            std::env::current_exe()?
        };
        let home = places.home.clone();
        let (variables, unreadable) = (Arc::clone(&environment), config.unreadable.clone());
        Ok(Self {
            secret: SecretPlaces::when_asked(move || {
                let mut secret = secret::places(home.as_deref(), &variables, &unreadable);
                secret.extend(secret::system::places());
                secret.into_iter().map(settled).collect()
            }),
            home: places.home.map(settled),
            private: private.into_iter().map(settled).collect(),
            programs: programs(&environment),
            writable: config.writable.clone(),
            landlock: Landlock::of_process(),
            network: config.network,
            unsandboxed: config.unsandboxed,
            program,
            environment,
        })
    }

    /// The directories of one call, the innermost first.
    ///
    /// # Errors
    /// The workspace isn't the directory any more that it was when the session began.
    pub(crate) fn roots(&self, around: &Surroundings) -> Result<Vec<Root>, Lost> {
        let root = |name: &Path, access| {
            let anchor = around.anchors.find(name)?;
            Ok(Root { anchor, access })
        };
        let is_ours = |root: &Root| {
            let mut private = self.private.iter().chain(&*self.secret);
            private.any(|private| root.dir().starts_with(private))
        };
        let mut roots = Vec::new();
        match root(&around.cwd, Access::Write) {
            Ok(workspace) => roots.push(workspace),
            Err(moved @ Lost::Moved(_)) => return Err(moved),
            // There may be no command, and somebody is asked for each file.
            Err(Lost::Closed { .. }) => {}
        }
        let writable = self.writable.iter();
        roots.extend(writable.filter_map(|dir| root(dir, Access::Write).ok()));
        // Who works where the keys are doesn't mean to tell a model of them.
        roots.retain(|root| !is_ours(root));
        let ours = [
            (around.spill.clone(), Access::Read),
            (temporary(around), Access::Write),
        ];
        let ours = ours.iter().filter(|(dir, _)| dir.is_dir());
        roots.extend(ours.filter_map(|(dir, access)| root(dir, *access).ok()));
        roots.retain(|root| !self.is_too_much(root.dir()));
        // A directory within another may have other rights, which go before.
        roots.sort_by_key(|root| std::cmp::Reverse(root.dir().components().count()));
        Ok(roots)
    }

    /// Nobody means the whole machine, or all homes, with a workspace: it is where a daemon
    /// happens to run.
    fn is_too_much(&self, dir: &Path) -> bool {
        let above_home = |home: &Path| home != dir && home.starts_with(dir);
        dir.parent().is_none() || self.home.as_deref().is_some_and(above_home)
    }

    /// Is it private within the root? What a root itself is in was named by somebody.
    pub(crate) fn is_private(&self, root: &Path, path: &Path) -> bool {
        self.private_within(root).has(path)
    }

    /// All of the root that is private: who looks at many paths of it asks once.
    pub(crate) fn private_within(&self, root: &Path) -> PrivatePlaces {
        let ours = self.private.iter().chain(&*self.secret);
        let kernel = KERNEL.iter().map(Path::new);
        let all = ours.map(PathBuf::as_path).chain(kernel);
        PrivatePlaces {
            places: all
                .filter(|private| private.starts_with(root))
                .map(Path::to_owned)
                .collect(),
            home: self.home.clone().filter(|home| home == root),
        }
    }

    /// Is it in a directory within the root that programs are looked for in? A root that is one
    /// itself was named by somebody.
    pub(crate) fn is_program(&self, root: &Path, path: &Path) -> bool {
        self.programs_within(root).any(|dir| path.starts_with(dir))
    }

    /// The directories within the root that programs are looked for in.
    pub(crate) fn programs_within<'a>(
        &'a self,
        root: &'a Path,
    ) -> impl Iterator<Item = &'a PathBuf> {
        let programs = self.programs.iter();
        programs.filter(move |dir| *dir != root && dir.starts_with(root))
    }

    /// Is it refused whatever anybody says? Who allows a file to be read doesn't mean to tell a
    /// model the keys.
    fn is_never(&self, path: &Path) -> bool {
        let of_processes = path.starts_with("/proc");
        let keys = |private: &PathBuf| path.starts_with(private);
        of_processes || self.private.iter().any(keys)
    }
}

/// Where programs keep tokens. They are looked for when the first tool of a turn asks, as that looks
/// at everything in `/etc`, and most turns use no tool.
#[derive(Clone)]
pub(crate) struct SecretPlaces(Arc<LazyLock<Vec<PathBuf>, FindPlaces>>);

type FindPlaces = Box<dyn FnOnce() -> Vec<PathBuf> + Send>;

impl SecretPlaces {
    fn when_asked(find: impl FnOnce() -> Vec<PathBuf> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(find))))
    }
}

impl From<Vec<PathBuf>> for SecretPlaces {
    fn from(places: Vec<PathBuf>) -> Self {
        Self::when_asked(|| places)
    }
}

impl Deref for SecretPlaces {
    type Target = [PathBuf];

    fn deref(&self) -> &[PathBuf] {
        &self.0
    }
}

impl fmt::Debug for SecretPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

/// What is private within a root.
pub(crate) struct PrivatePlaces {
    places: Vec<PathBuf>,
    /// The user's home, if that is the root.
    home: Option<PathBuf>,
}

impl PrivatePlaces {
    /// Is a path of the root among it?
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.places.iter().any(|private| path.starts_with(private)) || self.is_of_the_home(path)
    }

    /// With the home for a workspace, what starts with a dot there isn't work: it is what the
    /// user's programs keep, keys among it, and what they run at their start.
    fn is_of_the_home(&self, path: &Path) -> bool {
        let below = self.home.as_deref().map(|home| path.strip_prefix(home));
        let Some(Ok(below)) = below else {
            return false;
        };
        let first = below.iter().next();
        first.is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    }
}

/// A directory whose files may be touched without asking.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// It.
    pub(crate) anchor: Arc<Anchor>,
    /// What may be done.
    pub(crate) access: Access,
}

impl Root {
    /// Its path, without links.
    pub(crate) fn dir(&self) -> &Path {
        &self.anchor.path
    }
}

/// What is done, or may be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Access {
    /// Reading.
    Read,
    /// And writing.
    Write,
}

/// A file or directory that may be touched.
#[derive(Clone, Debug)]
pub(crate) struct AllowedPath {
    /// What everything is done beneath.
    base: Arc<Anchor>,
    /// Without links.
    pub(crate) path: PathBuf,
}

impl AllowedPath {
    /// What everything is done beneath.
    pub(crate) fn base(&self) -> &Path {
        &self.base.path
    }

    /// The same, open.
    pub(crate) fn base_dir(&self) -> io::Result<Dir> {
        self.base.dir()
    }

    /// The directory that it is in, and its name there.
    ///
    /// # Errors
    /// When one of the directories is missing, or has become something else.
    pub(crate) fn parent(&self) -> io::Result<(Dir, OsString)> {
        self.parent_or(|_, _| Err(io::ErrorKind::NotFound.into()))
    }

    /// The same; directories that are missing are made.
    pub(crate) fn parent_made(&self) -> io::Result<(Dir, OsString)> {
        self.parent_or(|dir, name| {
            let mut builder = DirBuilder::new();
            match dir.create_dir_with(name, builder.mode(0o777)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn parent_or(
        &self,
        missing: impl Fn(&Dir, &Path) -> io::Result<()>,
    ) -> io::Result<(Dir, OsString)> {
        let below = self.below(&self.path)?;
        let name = below.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let mut dir = self.base.dir()?;
        for step in below.parent().into_iter().flat_map(Path::components) {
            let step: &Path = step.as_ref();
            dir = match enter(&dir, step) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing(&dir, step)?;
                    enter(&dir, step)?
                }
                entered => entered?,
            };
        }
        Ok((dir, name.to_owned()))
    }

    /// It, a directory.
    pub(crate) fn dir(&self) -> io::Result<Dir> {
        self.dir_beneath(&self.path)
    }

    /// A directory beneath the same.
    pub(crate) fn dir_beneath(&self, path: &Path) -> io::Result<Dir> {
        let mut dir = self.base.dir()?;
        for step in self.below(path)?.components() {
            dir = enter(&dir, step.as_ref())?;
        }
        Ok(dir)
    }

    fn below<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        let below = path.strip_prefix(&self.base.path);
        below.map_err(|_| io::ErrorKind::InvalidInput.into())
    }
}

/// Opens a directory, and never what a link points to: the path had none when it was looked at.
fn enter(dir: &Dir, step: &Path) -> io::Result<Dir> {
    let flags = nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits());
    Ok(Dir::from_std_file(
        dir.open_with(step, &options)?.into_std(),
    ))
}

/// The session's directory for temporary files.
pub(crate) fn temporary(around: &Surroundings) -> PathBuf {
    around.spill.join(TEMPORARY)
}

/// Where a path of a model's leads, and that it may go there: somebody is asked when it leads out
/// of the roots, and shown what is written there: each of `texts`, and what it is.
///
/// # Errors
/// Why not, for the model.
pub(crate) async fn find(
    rules: &Rules,
    around: &Surroundings,
    path: &str,
    access: Access,
    texts: &[(&str, &str)],
) -> Result<AllowedPath, String> {
    let (rules_there, around_there, wanted) = (rules.clone(), around.clone(), path.to_owned());
    // A path may lead to a disk that sleeps.
    let found =
        tokio::task::spawn_blocking(move || locate(&rules_there, &around_there, &wanted, access));
    match found.await.map_err(|error| error.to_string())?? {
        Located::Inside(place) => Ok(place),
        Located::Never(path) => Err(format!(
            "{} is never given to tools: it belongs to agentd or to the kernel",
            path.display()
        )),
        Located::Outside { path, why } => {
            let doing = match access {
                Access::Read => "read",
                Access::Write => "write",
            };
            let title = format!("{doing} {}", path.display());
            let question = Question::new(&title).fact(&why);
            let question =
                (texts.iter()).fold(question, |question, (what, text)| question.text(what, text));
            around.ask(&question).await.map_err(|no| {
                let workspace = around.cwd.display();
                format!("{no}; {why}: use a path in the workspace {workspace}")
            })?;
            // It was allowed as it was shown, wherever that is; links on the way are still followed
            // by nobody.
            let base = Anchor::open(Path::new("/")).map_err(|error| format!("`/`: {error}"))?;
            Ok(AllowedPath {
                base: Arc::new(base),
                path,
            })
        }
    }
}

#[derive(Debug)]
enum Located {
    Inside(AllowedPath),
    Outside { path: PathBuf, why: String },
    Never(PathBuf),
}

fn locate(
    rules: &Rules,
    around: &Surroundings,
    path: &str,
    access: Access,
) -> Result<Located, String> {
    if path.is_empty() || path.contains('\0') {
        return Err("the path is empty or has a zero byte; expected a path".to_owned());
    }
    let roots = rules.roots(around).map_err(|lost| lost.to_string())?;
    let full = around.cwd.join(path);
    // Compared without links: `work/link/../../.ssh` begins with the workspace, too.
    let settled = settle(&full).map_err(|error| format!("`{path}`: {error}"))?;
    let within = roots.iter().find(|root| settled.starts_with(root.dir()));
    // The innermost decides alone: what it refuses isn't given by one around it.
    if let Some(root) = within
        && access <= root.access
        && !rules.is_private(root.dir(), &settled)
        && (access == Access::Read || !rules.is_program(root.dir(), &settled))
    {
        return Ok(Located::Inside(AllowedPath {
            base: Arc::clone(&root.anchor),
            path: settled,
        }));
    }
    // Behind the roots: a session's own output lies in the private state directory, and is a root.
    if rules.is_never(&settled) {
        return Ok(Located::Never(settled));
    }
    let why = match within {
        None => "it is outside of the workspace".to_owned(),
        Some(root) if access > root.access => "it may only be read".to_owned(),
        Some(root) if rules.is_program(root.dir(), &settled) => {
            "programs are looked for there".to_owned()
        }
        Some(_) => "it is private to the user's programs".to_owned(),
    };
    let has_tokens = rules.secret.iter().any(|place| settled.starts_with(place));
    let why = if has_tokens {
        format!("{why}, and programs keep tokens there")
    } else {
        why
    };
    Ok(Located::Outside { path: settled, why })
}

/// The directories of `PATH`, if there is one, as they are named.
pub(crate) fn search_path(environment: &[(OsString, OsString)]) -> Option<Vec<PathBuf>> {
    let (_, path) = environment.iter().find(|(name, _)| name == "PATH")?;
    let dirs = std::env::split_paths(path);
    Some(dirs.filter(|dir| dir.is_absolute()).collect())
}

/// The same without links, and as they are named: a link is something that could be replaced.
fn programs(environment: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let dirs = search_path(environment).unwrap_or_default().into_iter();
    dirs.flat_map(|dir| [settled(dir.clone()), dir]).collect()
}

/// The root of the repository that a directory is in, or else the directory.
///
/// As for git since 2.35.2 (`safe.directory`), a repository above it is none that belongs to another
/// user: whoever may write in `/tmp`, or in a directory that is shared, would give notes to all work below.
pub(crate) fn repository(dir: &Path) -> &Path {
    let mut above = dir.ancestors().take(MOST_PARENTS);
    let user = nix::unistd::geteuid().as_raw();
    let root = above.find(|dir| {
        let found = dir.join(".git").symlink_metadata();
        found.is_ok_and(|found| found.uid() == user || found.uid() == 0)
    });
    root.unwrap_or(dir)
}

/// A path without links, of what may be there only later.
fn settled(path: PathBuf) -> PathBuf {
    settle(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests;
