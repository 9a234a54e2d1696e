//! The words of the command line.
//!
//! Owns names, help and examples of every command. Must not know what a command does. What a type
//! says of itself would be help, so it is a plain comment.

mod acp;
mod agents;
mod bench;
mod bridge;
mod config;
mod control;
mod cron;
mod everywhere;
mod http;
mod look;
mod passed;
mod pi;
mod remote;
mod route;
mod service;
mod session;
mod shell;
mod turn;
mod webhook;
mod work;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use acp::AcpArgs;
pub use agents::{
    AddAgentArgs, AgentCommandsArgs, AgentNameArgs, AgentsArgs, AgentsCommand, DefaultAgentArgs,
    TestAgentArgs,
};
pub use bench::BenchArgs;
pub use bridge::BridgeArgs;
pub use config::{ConfigArgs, ConfigCommand, ConfigKeyArgs, ConfigSetArgs};
pub use control::{AbortArgs, DeadlineArgs, RestartArgs, RestartWorkersArgs, WatchArgs};
pub use cron::{
    CronAddArgs, CronArgs, CronCommand, CronEditArgs, CronListArgs, CronNameArgs, CronRunsArgs,
    CronWhenArgs, MissedArg, OverlapArg,
};
pub use everywhere::EverywhereArgs;
pub use http::{GatewayArgs, HttpArgs, McpArgs, ServeArgs, ServeCommand, TokenArgs};
pub use look::{
    ColorArg, DoctorArgs, ExportArgs, LogLevelArgs, LogsArgs, PastArgs, StatusArgs, UsageArgs,
    UsageBy,
};
pub use passed::PassedArgs;
pub use pi::PiArgs;
pub use remote::{
    ForwardArgs, SendOnlyArgs, SshKeyArgs, VoiceArgs, VoiceCheckArgs, VoiceCommand, VoiceFlushArgs,
    VoiceForgetArgs, VoiceForwardArgs,
};
pub use route::RouteArgs;
pub use service::{
    ServiceArgs, ServiceChangeArgs, ServiceCommand, ServiceLogsArgs, ServiceRestartArgs,
};
pub use session::{ForkSessionArgs, TitleSessionArgs};
pub use shell::{CompletionsArgs, ManArgs, Shell};
pub use turn::{
    AfterFailureArg, AgentArgs, AttachArgs, HowArgs, ModeArg, OnQuestionArg, RetryArg,
    RetryJobArgs, SendArgs, ShownArgs, TurnArgs, WhoArgs,
};
pub use webhook::{
    AddWebhookArgs, DeliveryArg, ReplayWebhookArgs, RotateWebhookArgs, TestWebhookArgs,
    WebhookArgs, WebhookCommand, WebhookListArgs, WebhookUrlArgs,
};
pub use work::{
    AnswerArgs, BackupArgs, CloseSessionsArgs, CollectArgs, CompactArgs, DispatchArgs, HistoryArgs,
    JobsArgs, ListSessionsArgs, ModelArgs, NewSessionArgs, PhaseArg, PsArgs, QuestionsArgs,
    RenameSessionArgs, RestoreArgs, SearchArgs, SessionArgs, SessionsArgs, SessionsCommand,
    ShowSessionArgs, SteerArgs,
};

/// Talk to AI agents through the per-user daemon `agentd`.
#[derive(Parser, Debug)]
#[command(
    name = "agentctl",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  agentctl send \"what changed here today?\"
  git diff | agentctl send \"summarise this\"
  agentctl status

Exit codes: 0 done, 1 failed or cancelled by others, 2 usage, 3 refused, 69 no daemon,
70 daemon hangs, 71 daemon stopped, 75 outcome unknown, 78 configuration, 124 timeout,
130 Ctrl-C, 143 ended by SIGTERM"
)]
pub struct Cli {
    /// Of every command.
    #[command(flatten)]
    pub everywhere: EverywhereArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum Command {
    /// Send one turn and print the answer
    #[command(after_help = "\
Examples:
  agentctl send \"fix the failing test\"
  agentctl send -c \"now the next one\"
  agentctl send -s main \"what did we decide?\"
  git diff | agentctl send \"summarise this\"
  agentctl send hi --json | jq -r 'select(.type == \"message_end\").text'

A pipe or a file on standard input goes into the prompt, behind the text; `-` alone is all of the
prompt. A pipe is read to its end; other inherited input (a socket, a terminal) is left alone, and
`< /dev/null` leaves out a pipe. The text is printed as it comes; with --quiet the answer alone,
when it is there.
`-c` goes on with the session of this directory that was used last, by whichever command, and of
--agent, if that is given; with --host, with the last one of that machine.")]
    #[command(alias = "run")]
    Send(SendArgs),
    /// Show a turn that runs, from its beginning, or the result of one that has ended
    #[command(after_help = "\
Examples:
  agentctl attach
  agentctl attach j41
  agentctl attach main

Ctrl-C leaves the turn running. Without a daemon the result of one that has ended is read from the
store. The exit code is that of `send`")]
    Attach(AttachArgs),
    /// Send the prompt of a job again, as a new job of its session
    #[command(after_help = "\
Examples:
  agentctl retry j41
  agentctl retry j41 --model large
  agentctl retry --label run=7

With the options that are stored with it; not its attachments, its callback and its start time. The
new job has the label `retry-of=JOB`")]
    #[command(
        override_usage = "agentctl retry [OPTIONS] <JOB>...\n       agentctl retry [OPTIONS] --label <KEY[=VALUE]>"
    )]
    Retry(RetryJobArgs),
    /// The same as `send`, with the options and the JSON of `openclaw agent`
    #[command(after_help = "\
Examples:
  agentctl agent --message \"hi\" --thinking low --session main
  agentctl agent --message \"hi\" --json | jq -r '.payloads[0].text'")]
    Agent(AgentArgs),
    /// Show the daemon, its workers and its queue
    #[command(after_help = "\
Examples:
  agentctl status
  agentctl status --rpc && echo \"a worker lives\"
  agentctl status --watch

Answers within a second. With --rpc: exit 0 when a worker lives, 1 when none does.
Exit 69 without a daemon, 70 when it does not answer, 71 when it was stopped (SIGSTOP)")]
    Status(StatusArgs),
    /// Check this installation, and say how to fix what is wrong
    #[command(after_help = "\
Examples:
  agentctl doctor
  agentctl doctor --fix
  agentctl doctor --full --json

Exit codes: 0 nothing is wrong, 1 something is")]
    Doctor(DoctorArgs),
    /// Show the daemon's log: from the journal, or from its file where there is none
    #[command(after_help = "\
Examples:
  agentctl logs -f
  agentctl logs --job j41
  agentctl logs --session main --since 2h --json

Prompts, answers and keys are never logged; `agentctl history` shows what was said")]
    Logs(LogsArgs),
    /// Change how much the daemon logs, until it restarts
    #[command(after_help = "\
Examples:
  agentctl log-level
  agentctl log-level debug
  agentctl log-level info,agentd_daemon::store=debug")]
    LogLevel(LogLevelArgs),
    /// The status for Prometheus
    #[command(after_help = "\
Examples:
  agentctl metrics
  agentctl metrics > agentd.prom

Without a daemon it prints `agentd_up 0`; exit codes as `status`")]
    Metrics,
    /// List agents and whether each is usable; add, remove or test one
    #[command(after_help = "\
Examples:
  agentctl agents
  agentctl agents test claude
  agentctl agents add mine --kind acp -- my-agent --acp
  agentctl agents --json | jq '.agents[] | select(.usable).name'")]
    Agents(AgentsArgs),
    /// Show which agent a prompt would go to by the routes, and why, without running it
    #[command(after_help = "\
Examples:
  agentctl route \"review the last commit\"
  agentctl route \"what is in it?\" --attach photo.png --json

`[[route]]` in config.toml says which agent answers what; `--agent auto` asks them, and so does a
turn without --agent after `agentctl agents default auto`")]
    Route(RouteArgs),
    /// How fast an agent answers here: by its own one-shot command, and by agentd
    #[command(after_help = "\
Examples:
  agentctl bench claude
  agentctl bench pi --turns 10 --yes
  agentctl bench codex --json
  agentctl bench timmy --provider echo

It runs real turns, which cost what they cost; the last needs no key and costs nothing. What it ran
is in no list, and counts in `agentctl usage`. An agent that has no one-shot command, or none that
is known, is measured by agentd alone")]
    Bench(BenchArgs),
    /// Manage who serves models to the built-in agent: store a key, add a server, try one
    #[command(
        disable_help_flag = true,
        after_help = "\
Examples:
  agentctl provider list
  agentctl provider add gemini
  agentctl provider test gemini

The built-in agent's own program, timmy, does it: `agentctl provider --help` asks it"
    )]
    Provider(PassedArgs),
    /// Show the models of all agents; manage which ones timmy asks, and in which order
    #[command(
        disable_help_flag = true,
        after_help = "\
Examples:
  agentctl models
  agentctl models status
  agentctl models default gemini/gemini-2.5-pro
  agentctl models fallbacks add openrouter/openai/gpt-4.1-mini
  agentctl models list --agent pi

Without more it asks each usable agent which models it has, `agentctl models list --agent NAME`, or
`--session NAME`, just one; a process of it is started if none lives. All else does the built-in
agent's own program, timmy: `agentctl models --help` asks it"
    )]
    Models(PassedArgs),
    /// Cancel turns: jobs, a session's turn, all with a label, or the only live one
    #[command(after_help = "\
Examples:
  agentctl abort
  agentctl abort j41 j42
  agentctl abort main --queued
  agentctl abort --label run=7")]
    #[command(aliases = ["cancel", "kill"])]
    Abort(AbortArgs),
    /// Hand in several turns at once, and print their jobs
    #[command(after_help = "\
Examples:
  agentctl dispatch \"count the tests\" \"count the files\"
  agentctl dispatch --agents pi,claude --collect \"review the last commit\"
  agentctl dispatch --label run=7 --key-prefix run-7 < prompts.txt
  echo '{\"prompt\":\"hi\",\"agent\":\"pi\"}' | agentctl dispatch --collect

Without a prompt, each line of standard input is one: plain text, or a `send` object
when it begins with `{`; what such an object names goes before the options.
256 at once are accepted all or none; more go in parts, one after the other.
The same keys again are the same jobs: nothing runs twice.")]
    Dispatch(DispatchArgs),
    /// Wait for jobs and print their results
    #[command(after_help = "\
Examples:
  agentctl collect j41
  agentctl collect j41 j42 --any --timeout 60
  agentctl collect --label run=7

Results come in the order asked; `agentctl jobs JOB --json` has the prompt and labels of one.
Without a daemon the results that are stored are printed. Exit codes: 0 all is done, 1 a job
failed, 69 some are not done and no daemon runs, 124 some are not done yet")]
    #[command(
        override_usage = "agentctl collect [OPTIONS] <JOB>...\n       agentctl collect [OPTIONS] --label <KEY[=VALUE]>"
    )]
    Collect(CollectArgs),
    /// List jobs, newest first; or show all about one
    #[command(after_help = "\
Examples:
  agentctl jobs
  agentctl jobs j41
  agentctl jobs --agent claude --limit 5
  agentctl jobs --label run=7 --since 2h --json | jq -r '.jobs[].job'")]
    Jobs(JobsArgs),
    /// List what runs and what waits now
    #[command(after_help = "Examples:\n  agentctl ps\n  agentctl ps --json")]
    Ps(PsArgs),
    /// Show what turns used and cost, and how much of it local models served
    #[command(after_help = "\
Examples:
  agentctl usage
  agentctl usage --since 7d --by model
  agentctl usage --by day,agent --csv > usage.csv

It is counted from the results that are stored: what is forgotten isn't in it. `local` is what a
model on your own machines answered. Days are those of UTC. Nothing leaves this machine.")]
    Usage(UsageArgs),
    /// Manage who is told that a job has ended; list and repeat deliveries
    #[command(after_help = "\
Examples:
  agentctl webhook add https://ci.example/hooks/
  agentctl send \"run the checks\" --callback https://ci.example/hooks/agentd
  agentctl webhook list --state dead

What a receiver has to do is in client/WEBHOOKS.md.")]
    Webhook(WebhookArgs),
    /// Send turns by themselves: once at a time, again and again, or as crontab says
    #[command(after_help = "\
Examples:
  agentctl cron add --message \"Work on issue #98\" --at +1m
  agentctl cron add --message \"what broke overnight?\" --cron \"0 9 * * 1-5\"
  agentctl cron list
  agentctl cron runs c1

The daemon sends them: what passed while none ran goes by --missed.")]
    Cron(CronArgs),
    /// Say something to a running turn
    #[command(after_help = "\
Examples:
  agentctl steer \"leave the tests alone\"
  agentctl steer --session main \"stop after the first one\"")]
    Steer(SteerArgs),
    /// List sessions, last used first; show, search, rename or close them
    #[command(after_help = "\
Examples:
  agentctl sessions
  agentctl sessions search failing test
  agentctl sessions rename s41 parser
  agentctl sessions new main --agent pi
  agentctl sessions resume main")]
    #[command(aliases = ["ls", "list"])]
    Sessions(SessionsArgs),
    /// Show what was said in a session, oldest first
    #[command(after_help = "\
Examples:
  agentctl history main
  agentctl history --last
  agentctl history main --job j41 --full
  agentctl history main --full > main.txt
  agentctl history main#12

The last is of a session that was closed, as `agentctl sessions list --closed` names it.")]
    History(HistoryArgs),
    /// List questions of agents that nobody has answered yet
    #[command(after_help = "\
Examples:
  agentctl questions
  agentctl questions --session main --json")]
    Questions(QuestionsArgs),
    /// Answer an agent's question
    #[command(after_help = "\
Examples:
  agentctl answer j41-q1
  agentctl answer j41-q1 --approve
  agentctl answer j41-q2 --choice staging
  pass show token | agentctl answer j41-q3 --text -

Without an answer it is asked for on the terminal. A secret is typed there unseen, or comes
from standard input: an argument could be read by everybody with `ps`.")]
    Answer(AnswerArgs),
    /// Change the model or the mode of a session
    #[command(after_help = "\
Examples:
  agentctl model main anthropic/claude-sonnet-4-5
  agentctl model main gpt-5 --provider openai --thinking low
  agentctl model main --mode plan

The agent is asked for its models first; one that it doesn't list is taken with --force.")]
    Model(ModelArgs),
    /// Let the agent shorten what it remembers of a session
    #[command(after_help = "\
Examples:
  agentctl compact main
  agentctl compact main --instructions \"keep the file names\"")]
    Compact(CompactArgs),
    /// Copy the store to a file that is whole by itself
    #[command(after_help = "\
In the copy: jobs, sessions, attachments, and what timmy remembers of its sessions. Not in it: \
the configuration, keys, and what other agents keep for themselves, as Claude Code's own sessions.

Examples:
  agentctl backup
  agentctl backup monday.db
  agentctl backup --every 1d --keep 7")]
    Backup(BackupArgs),
    /// Put a backup in the place of the store, while the daemon is stopped
    #[command(after_help = "\
Examples:
  agentctl stop && agentctl restore monday.db")]
    Restore(RestoreArgs),
    /// Print everything stored, or a session, one JSON object on each line
    #[command(after_help = "\
Examples:
  agentctl export > all.jsonl
  agentctl export trip --output trip.jsonl")]
    Export(ExportArgs),
    /// Print what happens, as it happens, until Ctrl-C
    #[command(after_help = "\
Examples:
  agentctl watch
  agentctl watch --session main --json
  agentctl watch --job j41 --after 0

With --after, what happened since that `seq` comes first; 0 is the beginning")]
    Watch(WatchArgs),
    /// Start the daemon in the background, or its service where one is installed
    #[command(after_help = "\
Examples:
  agentctl start
  agentctl start && agentctl status

It is there when this returns. It keeps running when the shell ends; its log is what
`agentctl logs` shows. Exit codes: 0 it runs, 3 somebody else has its files, 78 configuration")]
    Start,
    /// Restart the daemon, when its running turns have ended
    #[command(after_help = "\
Examples:
  agentctl restart
  agentctl restart --deadline 10m

Queued turns stay stored, and whoever sends meanwhile waits for the new daemon. The processes of
one agent are restarted by `agentctl agents restart AGENT`.")]
    Restart(RestartArgs),
    /// Stop the daemon; queued turns stay stored
    #[command(after_help = "\
Examples:
  agentctl stop
  agentctl stop --deadline 5")]
    Stop(DeadlineArgs),
    /// Run the daemon as a service of your service manager (systemd; launchd on macOS)
    #[command(after_help = "\
Examples:
  agentctl service install
  agentctl service status
  agentctl service restart")]
    Service(ServiceArgs),
    /// Start no new turn and wait until none runs
    #[command(after_help = "\
Examples:
  agentctl drain
  agentctl drain --deadline 60 && agentctl stop")]
    Drain(DeadlineArgs),
    /// Start turns again
    #[command(after_help = "Examples:\n  agentctl undrain")]
    Undrain,
    /// Relay protocol lines between standard input and output and the daemon
    #[command(after_help = "\
Examples:
  echo '{\"prompt\":\"hi\"}' | agentctl stdio
  ssh host agentctl stdio")]
    Stdio(StdioArgs),
    /// Be `nc -U`, for a socket of your own only
    #[command(after_help = "\
Examples:
  echo '{\"prompt\":\"hi\"}' | agentctl nc
  echo '{\"type\":\"status\"}' | agentctl nc /tmp/timmy.sock

Bytes as they are, until the daemon closes. Nothing is sent where the socket, or the link to it,
belongs to somebody else: in /tmp anybody may have put one.")]
    Nc(NcArgs),
    /// Give the daemon of another machine a socket on this one, until Ctrl-C
    #[command(after_help = "\
Examples:
  agentctl forward me@mac
  agentctl forward mac --local /tmp/mac.sock
  agentctl --socket /tmp/mac.sock send --no-fallback hi

For programs that speak to sockets; `agentctl` itself needs no more than `--host`.
Give `--no-fallback` with such a socket: else, while the daemon there is down, this machine
would run the turn.")]
    Forward(ForwardArgs),
    /// Serve programs that speak another protocol: HTTP, MCP, editors, JSONL hosts
    #[command(after_help = "\
Examples:
  agentctl serve http
  agentctl serve http --listen '[::1]:7878'
  agentctl serve mcp
  agentctl serve acp --bootstrap
  agentctl serve bridge --once
  agentctl serve pi --agent claude")]
    Serve(ServeArgs),
    /// Print the token that every HTTP request has to bring
    #[command(after_help = "\
Examples:
  agentctl token
  agentctl token --new

Whoever has it can ask the agents anything, as you. It is in http.token of the state directory.")]
    Token(TokenArgs),
    /// Print the line for `authorized_keys` that lets an ssh key send, and nothing else
    #[command(after_help = "\
Examples:
  ssh-keygen -t ed25519 -N '' -f ~/.ssh/agentd_voice
  agentctl ssh-key mac --key ~/.ssh/agentd_voice.pub
  agentctl ssh-key mac --key ~/.ssh/agentd_voice.pub --agents timmy --no-tools
  agentctl ssh-key mac --key ~/.ssh/agentd_voice.pub --program /opt/bin/agentctl

The line goes into ~/.ssh/authorized_keys on that machine. Whoever has the key can ask these
agents anything and have them do what their tools do; it opens no shell, reads no file, forwards
nothing and runs no other command.")]
    SshKey(SshKeyArgs),
    /// Send what was said to a session, now or as soon as its machine can be reached
    #[command(after_help = "\
Examples:
  echo \"what is on today\" | agentctl voice forward --host me@mac
  agentctl voice check me@mac
  agentctl voice flush")]
    Voice(VoiceArgs),
    /// Show, change or edit the configuration
    #[command(after_help = "\
Examples:
  agentctl config show
  agentctl config set default_agent pi
  agentctl config edit")]
    Config(ConfigArgs),
    /// See it work, without any key or network
    #[command(after_help = "Examples:\n  agentctl demo")]
    Demo,
    /// The version of this program, and of the daemon that runs
    #[command(hide = true, after_help = "Examples:\n  agentctl version")]
    Version(JsonArgs),
    /// Print the completion script of a shell, which knows agents, sessions, jobs and models
    #[command(after_help = "\
Examples:
  agentctl completions bash > ~/.local/share/bash-completion/completions/agentctl
  agentctl completions zsh > ~/.zfunc/_agentctl
  agentctl completions fish > ~/.config/fish/completions/agentctl.fish

bash needs the package bash-completion. zsh needs `fpath+=~/.zfunc` before `compinit` in ~/.zshrc.
fish needs nothing. A new shell has it then. The packages bring these files with them.")]
    Completions(CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = "\
Examples:
  agentctl man --to ~/.local/share/man/man1 && man agentctl-send")]
    Man(ManArgs),
}

// A command with nothing but `--json`.
#[derive(Args, Clone, Debug)]
pub struct JsonArgs {
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct StdioArgs {
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
    /// Let nothing but sends pass: for an ssh key that may do nothing else
    #[arg(long)]
    pub send_only: bool,
    /// What they may say.
    #[command(flatten)]
    pub rules: SendOnlyArgs,
}

#[derive(Args, Clone, Debug)]
pub struct NcArgs {
    /// The socket, instead of that of every other command
    #[arg(value_name = "SOCKET", conflicts_with = "socket")]
    pub place: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
