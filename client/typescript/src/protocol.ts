// The lines of agentd's protocol 1 as types, made of `client/protocol/schema.json` by
// `cargo xtask schema`: changes are made there.

export interface AbortLine {
  type: "abort";
  ok: boolean;
  jobs: string[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `abort`; without a target, this connection's last send, else the only live one. */
export interface AbortRequest {
  type: "abort";
  /** One job. */
  job?: string | null;
  /** The turn in flight of a session. */
  session?: string | null;
  /** With `session`: what waits there, too. */
  queued?: boolean;
  /** The send with this key, whatever else is named, also while whether it was accepted isn't known yet. */
  idempotency_key?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** `accepted`: the send survives power loss from here on. */
export interface AcceptedLine {
  type: "accepted";
  job: string;
  session: string;
  agent: string;
  ignored: Ignored[];
  running?: boolean;
  /** Does the daemon start no turns at the moment? */
  drained?: boolean;
  /** Was there no session of the name that it gave, so that it made one? */
  made?: boolean;
  /** Why it has this agent, where the routes were asked. */
  routed?: Routed;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
  /** Is it told again, to a request with the key of an earlier one? */
  replayed?: boolean;
}

/** What happens to a waiting turn when one before it in the session was interrupted. */
export type AfterFailure =
  | "hold"
  | "run";

export interface AgentEventLine {
  type: "agent_event";
  job: string;
  kind: string;
  data: unknown;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** One agent, known or looked for. */
export interface AgentRow {
  name: string;
  kind: string;
  command: string[];
  /** `config`, `path`, `place`, `built-in` or `looked-for`. */
  found: string;
  /** What its program says of itself. */
  version: string | null;
  /** Is somebody logged in? `None` where that can't be seen. */
  logged_in: boolean | null;
  /** Why there is no version, or what the program lacks. */
  note?: string;
  /** How one turn of it is run without agentd, if it has a form for that, with its model filled in. */
  one_shot?: string[];
  usable: boolean;
  why_not: string | null;
  default: boolean;
}

export interface AgentsLine {
  type: "agents";
  ok: boolean;
  agents: AgentRow[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface AgentsRequest {
  type: "agents";
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface AnswerLine {
  type: "answer";
  ok: boolean;
  question_id: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `answer`: to one question, with just one of the four. */
export interface AnswerRequest {
  type: "answer";
  /** Which. */
  question_id: string;
  /** To an `approval`. */
  approve?: boolean | null;
  /** With `approve:true`: how far the yes goes; once when absent. */
  scope?: Scope | null;
  /** To a `choice`: one of its options. */
  choice?: string | null;
  /** To a `text` or a `secret`. */
  text?: Private | null;
  /** To any: there will be no answer. An approval is denied. */
  cancel?: boolean;
  /** A daemon says so to its worker: nobody answered, and why. */
  by?: Silence | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/**
 * One attachment: as its sender gave it, with `path` or with `mime` and `data`; as it was
 * accepted, with `mime`, `bytes` and `sha256`.
 */
export interface Attachment {
  /** A file: absolute. */
  path?: string | null;
  /** Its type; found by the content of a file. */
  mime?: string | null;
  /** The content in base64. */
  data?: string | null;
  /** What people call it; of a file, the last part of its path. */
  name?: string | null;
  /** Of the content; said by the daemon. */
  bytes?: number | null;
  /** Of the content, in hex; said by the daemon. */
  sha256?: string | null;
}

/**
 * One attachment: as its sender gave it, with `path` or with `mime` and `data`; as it was
 * accepted, with `mime`, `bytes` and `sha256`.
 */
export interface AttachmentRow {
  /** A file: absolute. */
  path?: string;
  /** Its type; found by the content of a file. */
  mime?: string;
  /** The content in base64. */
  data?: string;
  /** What people call it; of a file, the last part of its path. */
  name?: string;
  /** Of the content; said by the daemon. */
  bytes?: number;
  /** Of the content, in hex; said by the daemon. */
  sha256?: string;
}

export interface BackupLine {
  type: "backup";
  ok: boolean;
  path: string;
  bytes: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `backup`: a copy of the store that is whole by itself. */
export interface BackupRequest {
  type: "backup";
  /**
   * Absolute, not there yet; a name with the time in the state directory when absent. With `every`
   * a directory, in which each copy has a name with its time.
   */
  path?: string | null;
  /** From now on such a copy is made by itself so often, in seconds; 0 ends that. */
  every?: number | null;
  /** So many of those copies are kept; [`Self::KEPT`] when absent. */
  keep?: number | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** Bytes that are held, and how many may be. */
export interface Budget {
  bytes: number;
  limit: number;
}

/** By what turns are added up. */
export type By =
  | "agent"
  | "provider"
  | "model"
  | "day"
  | "session";

/** Who is told of a job's end; the whole of `webhook.test`, too. */
export interface Callback {
  /** Where to, http or https. */
  url: string;
  /** Is the text told, too? */
  result?: boolean;
}

/** Why a request or a job failed. */
export type Code =
  | "frame-too-long"
  | "bad-utf8"
  | "bad-json"
  | "not-an-object"
  | "truncated"
  | "unknown-command"
  | "invalid-request"
  | "ambiguous"
  | "unknown-agent"
  | "no-agent"
  | "unknown-session"
  | "unknown-job"
  | "unknown-question"
  | "unknown-webhook"
  | "already-answered"
  | "session-busy"
  | "session-idle"
  | "session-conflict"
  | "queue-full"
  | "outcome-unknown"
  | "too-many-connections"
  | "draining"
  | "idempotency-conflict"
  | "unsupported"
  | "forbidden"
  | "context-lost"
  | "agent-failed"
  | "agent-auth"
  | "no-model"
  | "rate-limit"
  | "context-overflow"
  | "output-limit"
  | "worker-start-failed"
  | "worker-exited"
  | "worker-unresponsive"
  | "crash-looped"
  | "interrupted"
  | "timeout"
  | "expired"
  | "disk-full"
  | "store-failed"
  | "needs-daemon"
  | "cursor-expired"
  | "cursor-invalid"
  | "internal"
  | "unknown";

export interface CollectLine {
  type: "collect";
  ok: boolean;
  /** Each a final line. */
  results: FinalLine[];
  pending: string[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `collect`. */
export interface CollectRequest {
  type: "collect";
  /** Which. */
  jobs: string[];
  /** Seconds to wait; until all are done when absent. */
  timeout?: number | null;
  /** For all of them or for the first. */
  wait?: Wait;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** A command as its agent tells it. A prompt that begins with `/` and the name is one. */
export interface CommandRow {
  name: string;
  description?: string;
  hint?: string;
}

export interface CommandsLine {
  type: "commands";
  ok: boolean;
  /** Whose they are. */
  agent: string;
  commands: CommandRow[];
  /** What is not as one may think: why there is none, or what was left out. */
  note?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `commands`: which slash commands an agent has, or that of a session. */
export interface CommandsRequest {
  type: "commands";
  /** Whose; without, and without a session, the one that a send would go to. */
  agent?: string | null;
  /** That of this session. */
  session?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CompactLine {
  type: "compact";
  ok: boolean;
  session: string;
  summary?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `compact`: the agent shortens what it remembers of a session. */
export interface CompactRequest {
  type: "compact";
  /** Which; without, this connection's last send's. */
  session?: string | null;
  /** What to keep. */
  instructions?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** Which configuration counts. */
export interface ConfigFacts {
  /** The path of `config.toml`. */
  file: string;
  /** When the one that counts was read. */
  since: string;
  /** Why the newest one does not count. */
  refused?: string;
  /** What of it counts only when the daemon is started anew. */
  needs_restart?: string[];
}

/** A rule that was passed over. */
export interface Considered {
  /** Which, as in `rule`. */
  rule: string;
  /** Why. */
  because: string;
}

/** Did the turn have the session's earlier turns? */
export type Context =
  | "continued"
  | "new"
  | "lost";

/** What a turn cost. */
export interface Cost {
  /** US dollars; `None` unless the status is `actual` or `estimated`. */
  usd: number | null;
  /** `actual`, `estimated`, `included` or `unknown`. */
  status: CostStatus;
  /** Who says so. */
  source?: string;
}

/** How far a cost can be believed. */
export type CostStatus =
  | "actual"
  | "estimated"
  | "included"
  | "unknown";

/** A process that died unasked. */
export interface CrashRow {
  at: string;
  worker: number;
  agent: string;
  session?: string;
  error: string;
}

export interface CronAddLine {
  type: "cron.add";
  ok: boolean;
  /** A [`crate::schedule::ScheduleRow`]. */
  schedule: ScheduleRow;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What a schedule says: the fields of `cron.add`. */
export interface CronAddRequest {
  type: "cron.add";
  /** What people call it; no two have the same. */
  name?: string | null;
  /** Once: RFC 3339, a local time in `tz`, or `+` and a time from now. */
  at?: string | null;
  /** Each so long, counted from when it was made. */
  every?: string | null;
  /** Five fields, as crontab has them. */
  cron?: string | null;
  /** The time zone by its IANA name; the machine's when absent. */
  tz?: string | null;
  /** Each due time comes later by up to so much, always by the same. */
  jitter?: string | null;
  /** Due times that passed while nobody was there. */
  missed?: Missed;
  /** Due times while the run before goes on. */
  overlap?: Overlap;
  /** So many runs are kept; 100 when absent. */
  keep?: number | null;
  /** After a run that failed so long, and twice as long after each further one. */
  backoff?: string | null;
  /** After so many that failed in a row it is paused. */
  max_failures?: number | null;
  /** What is sent each time; without `session`, in a new one. */
  send: Send;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronEditLine {
  type: "cron.edit";
  ok: boolean;
  /** A [`crate::schedule::ScheduleRow`]. */
  schedule: ScheduleRow;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.edit`: other fields for a schedule. */
export interface CronEditRequest {
  type: "cron.edit";
  /** Its id, or its name. */
  schedule: string;
  /**
   * Fields of `cron.add` that take the place of those it has; `null` takes one away. Of `send`
   * likewise.
   */
  set: Record<string, unknown>;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronListLine {
  type: "cron.list";
  ok: boolean;
  /** Each a [`crate::schedule::ScheduleRow`]. */
  schedules: ScheduleRow[];
  next?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.list`: schedules, as they were made. */
export interface CronListRequest {
  type: "cron.list";
  /** Only this one, by id or name. */
  schedule?: string | null;
  /** At most so many; 50 when absent. */
  limit?: number | null;
  /** The `next` of the page before. */
  after?: number | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronPauseLine {
  type: "cron.pause";
  ok: boolean;
  /** A [`crate::schedule::ScheduleRow`]. */
  schedule: ScheduleRow;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.pause`, `cron.resume`, `cron.run`, `cron.remove`: one schedule. */
export interface CronPauseRequest {
  type: "cron.pause";
  /** Its id, or its name. */
  schedule: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronRemoveLine {
  type: "cron.remove";
  ok: boolean;
  /** A [`crate::schedule::ScheduleRow`]. */
  schedule: ScheduleRow;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.pause`, `cron.resume`, `cron.run`, `cron.remove`: one schedule. */
export interface CronRemoveRequest {
  type: "cron.remove";
  /** Its id, or its name. */
  schedule: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronResumeLine {
  type: "cron.resume";
  ok: boolean;
  /** A [`crate::schedule::ScheduleRow`]. */
  schedule: ScheduleRow;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.pause`, `cron.resume`, `cron.run`, `cron.remove`: one schedule. */
export interface CronResumeRequest {
  type: "cron.resume";
  /** Its id, or its name. */
  schedule: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronRunLine {
  type: "cron.run";
  ok: boolean;
  /** Its id. */
  schedule: string;
  job: string;
  session: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.pause`, `cron.resume`, `cron.run`, `cron.remove`: one schedule. */
export interface CronRunRequest {
  type: "cron.run";
  /** Its id, or its name. */
  schedule: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface CronRunsLine {
  type: "cron.runs";
  ok: boolean;
  /** Its id. */
  schedule: string;
  /** Each a [`crate::schedule::RunRow`]. */
  runs: RunRow[];
  next?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `cron.runs`: what became of the due times of a schedule, newest first. */
export interface CronRunsRequest {
  type: "cron.runs";
  /** Its id, or its name. */
  schedule: string;
  /** At most so many; 50 when absent. */
  limit?: number | null;
  /** The `next` of the page before. */
  before?: number | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** The process. */
export interface DaemonFacts {
  version: string;
  pid: number;
  uptime_s: number;
  epoch: string;
  rss_bytes: number | null;
  open_files?: number;
  file_limit?: number;
  log?: LogFacts;
  config?: ConfigFacts;
  before?: LeftFacts;
}

/** Of the daemon as a whole. */
export type DaemonState =
  | "ready"
  | "degraded"
  | "draining";

export interface DaemonStopLine {
  type: "daemon.stop";
  ok: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `daemon.stop`. */
export interface DaemonStopRequest {
  type: "daemon.stop";
  /** Seconds that running turns get; 30 when absent. */
  deadline?: number | null;
  /** Another daemon follows at once: clients wait for it. */
  restart?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** One delivery of a list. */
export interface DeliveryRow {
  webhook: string;
  /** None: it was a test. */
  job?: string;
  url: string;
  state: DeliveryState;
  attempts: number;
  created_at: string;
  /** Of the next attempt, while there is one. */
  next_at?: string;
  /** Of the last attempt. */
  last_at?: string;
  /** What the receiver answered to it, if it did. */
  status?: number;
  /** Why it isn't delivered. */
  error?: string;
}

/** How far a delivery is. */
export type DeliveryState =
  | "pending"
  | "delivered"
  | "dead";

export interface DispatchLine {
  type: "dispatch";
  ok: boolean;
  jobs: DispatchedRow[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** Several turns, all or none. */
export interface DispatchRequest {
  type: "dispatch";
  /** In place of them the fields of one may stand beside `type`. */
  jobs?: Send[];
  /** Comes back in every line about it. */
  id?: unknown;
}

/** One job of a `dispatch`'s answer. */
export interface DispatchedRow {
  job: string;
  session: string;
  replayed: boolean;
  ignored?: Ignored[];
}

export interface DrainLine {
  type: "drain";
  ok: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `drain`. */
export interface DrainRequest {
  type: "drain";
  /** Seconds to wait for running turns; 600 when absent. */
  deadline?: number | null;
  /** Lasts until nothing more can be asked over the connection, unless that asked for a stop, too. */
  while_connected?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** A message of a conversation that was held elsewhere. */
export interface Earlier {
  /** Whose it is. */
  role: Speaker;
  /** What was said; not blank. */
  text: string;
}

/** A message of a conversation that was held elsewhere. */
export interface EarlierRow {
  /** Whose it is. */
  role: Speaker;
  /** What was said; not blank. */
  text: string;
}

/** One configured endpoint; its secrets are told to nobody. */
export interface EndpointRow {
  url: string;
  allow_private: boolean;
  /** How many: two while they are rotated. */
  secrets: number;
}

/** `error`: a refusal, or how a job failed. */
export interface ErrorLine {
  type: "error";
  /** For programs. */
  code: Code;
  /** The sentence. */
  error: string;
  /** What to do. */
  hint?: string | null;
  /** What could be meant, of an `ambiguous` send: names of agents. */
  choices?: string[];
  /** May the same request succeed later? */
  retryable: boolean;
  job?: string | null;
  session?: string | null;
  context_tokens?: number | null;
  context_window?: number | null;
  text?: string;
  truncated?: boolean;
  refusal?: string | null;
  suspected_refusal?: boolean;
  context?: Context | null;
  agent?: string | null;
  provider?: string | null;
  model?: string | null;
  local?: boolean | null;
  thinking?: string | null;
  usage?: Usage | null;
  cost?: Cost;
  api_calls?: unknown[] | null;
  soul_sha256?: string | null;
  tool_trace?: ToolTrace[];
  tool_trace_truncated?: boolean;
  attempt?: number;
  queued_ms?: number;
  duration_ms?: number;
  served_by?: string;
  fallback_reason?: string | null;
  messages?: Message[] | null;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
  /** Is it told again, to a request with the key of an earlier one? */
  replayed?: boolean;
}

export interface ExportLine {
  type: "export";
  ok: boolean;
  rows: unknown[];
  next?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `export`: everything stored, or a session with its jobs, in pages. */
export interface ExportRequest {
  type: "export";
  /** The `next` of the page before. */
  after?: number | null;
  /** Only this session and its jobs. */
  session?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** What a tool call changed in one file. */
export interface FileChange {
  /** As the agent names it. */
  path: string;
  /** The text that was replaced: a passage or the whole file. None where the agent doesn't say. */
  old?: string;
  /** What is there instead. */
  new?: string;
  /** In place of both, where the agent tells it so: a unified diff. */
  diff?: string;
}

export type FinalLine =
  | MessageEndLine
  | ErrorLine;

/** One turn in which something was found. */
export interface FoundRow {
  job: string;
  session: string;
  agent: string;
  state: JobPhase;
  accepted_at: string;
  /** `prompt` or `answer`: where the excerpt is from. */
  part: string;
  /** What stands around the first of the words. */
  excerpt: string;
  /** As that of a session's row. */
  closed_as?: string;
}

/** The limits a client may want to know. */
export interface HelloLimits {
  line_in: number;
  line_out: number;
  in_flight: number;
}

/** `hello`'s answer. */
export interface HelloLine {
  type: "hello";
  ok: boolean;
  server: string;
  version: string;
  protocol: number;
  epoch: string;
  pid: number;
  uid: number;
  capabilities: string[];
  limits: HelloLimits;
  /** `daemon` or `oneshot`; not said by versions that don't know of it. */
  served_by?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `hello`. */
export interface HelloRequest {
  type: "hello";
  /** The caller's name, for the log. */
  client?: string | null;
  /** The caller's version. */
  version?: string | null;
  /** The protocol it speaks; 1 when absent. */
  protocol?: number | null;
  /** Is somebody here who answers questions? */
  answers?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** A field nobody here knows, and the known name nearest to it. */
export interface Ignored {
  /** As written. */
  field: string;
  /** What may have been meant. */
  nearest?: string;
}

/** How far a job is, in the words of `jobs`. */
export type JobPhase =
  | "queued"
  | "held"
  | "running"
  | "completed"
  | "cancelled"
  | "failed"
  | "interrupted";

/** One job of a list. */
export interface JobRow {
  job: string;
  session: string;
  agent: string;
  state: JobPhase;
  attempt: number;
  /** The beginning of the prompt. */
  preview: string;
  labels?: Record<string, string>;
  parent?: string;
  accepted_at: string;
  /** Not before. */
  start_at?: string;
  /** When the turn began that runs. */
  started_at?: string;
  /** What the turn does that runs, in a few words for people. */
  doing?: string;
  /**
   * Is it stored as running, and the process that ran it gone? The next daemon decides what
   * becomes of it.
   */
  cut_off?: boolean;
  finished_at?: string;
  /** Of a `message_end`. */
  stop?: string;
  /** Of an `error`. */
  code?: string;
  /** Why it has this agent, where the routes were asked. */
  routed?: Routed;
}

export interface JobsLine {
  type: "jobs";
  ok: boolean;
  jobs: JobRow[];
  next?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `jobs`: which jobs there are, newest first. */
export interface JobsRequest {
  type: "jobs";
  /** Of one session. */
  session?: string | null;
  /** Of one agent. */
  agent?: string | null;
  /** So far. */
  state?: JobPhase | null;
  /** With this label: `key` or `key=value`. */
  label?: string | null;
  /** Sent from inside this job's worker. */
  parent?: string | null;
  /** Accepted no longer ago than so many seconds. */
  since?: number | null;
  /** At most so many; 50 when absent. */
  limit?: number | null;
  /** Older than this one: the `next` of the page before. */
  before?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** What the daemon before left running, if it ended without saying so. */
export interface LeftFacts {
  /** Turns that were interrupted. */
  interrupted: number;
  /** Turns that run again. */
  again: number;
}

/** How much a `note` matters. */
export type Level =
  | "info"
  | "warning";

export type Line =
  | AcceptedLine
  | SessionLine
  | RunningLine
  | MessageStartLine
  | MessageDeltaLine
  | ThinkingDeltaLine
  | ToolStartLine
  | ToolUpdateLine
  | ToolEndLine
  | QuestionLine
  | QuestionClosedLine
  | SessionChangedLine
  | NoteLine
  | AgentEventLine
  | MessageEndLine
  | ErrorLine
  | HelloLine
  | PongLine
  | StatusLine
  | AgentsLine
  | DispatchLine
  | JobsLine
  | UsageLine
  | SteerLine
  | QuestionsLine
  | AnswerLine
  | CompactLine
  | SetModelLine
  | CommandsLine
  | ModelsLine
  | RouteLine
  | SessionListLine
  | SessionNewLine
  | SessionForkLine
  | SessionCloseLine
  | SessionResumeLine
  | SessionRenameLine
  | SessionTitleLine
  | SessionSearchLine
  | SessionHistoryLine
  | BackupLine
  | ExportLine
  | WebhooksLine
  | WebhookReplayLine
  | WebhookTestLine
  | CronAddLine
  | CronEditLine
  | CronListLine
  | CronPauseLine
  | CronRemoveLine
  | CronResumeLine
  | CronRunLine
  | CronRunsLine
  | AbortLine
  | CollectLine
  | RestartWorkerLine
  | LiveLine
  | UnsubscribeLine
  | ShutdownLine
  | DrainLine
  | UndrainLine
  | DaemonStopLine
  | LogLevelLine;

export interface LiveLine {
  type: "live";
  seq: number;
  epoch: string;
  /** That of the request. */
  id?: unknown;
}

/** How the daemon logs. */
export interface LogFacts {
  /** Directives as in `info,agentd_daemon::store=debug`. */
  level: string;
  /** `journal`, `stderr`, or the file's path. */
  to: string;
}

/** How the daemon logs. */
export interface LogLevelLine {
  type: "log_level";
  ok: boolean;
  /** Directives as in `info,agentd_daemon::store=debug`. */
  level: string;
  /** `journal`, `stderr`, or the file's path. */
  to: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `log_level`; without a level it only asks. */
export interface LogLevelRequest {
  type: "log_level";
  /** A level, or directives as in `info,agentd_daemon::store=debug`. */
  level?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** One of them. What it is started or asked with may hold secrets: `Debug` says its name only. */
export type McpServer =
  | {
    type: "stdio";
    /** What its tools are called after. */
    name: string;
    /** The program. */
    command: string;
    /** Its arguments. */
    args?: string[];
    /** Variables that it gets besides those that the agent gives it. */
    env?: Texts;
  }
  | {
    type: "http";
    /** What its tools are called after. */
    name: string;
    /** Where it is. */
    url: string;
    /** Sent with each request. */
    headers?: Texts;
  }
  | {
    type: "sse";
    /** What its tools are called after. */
    name: string;
    /** Where it is. */
    url: string;
    /** Sent with each request. */
    headers?: Texts;
  };

/** Memory that is held for others. */
export interface MemoryFacts {
  /** By turns that wait. */
  queued: Budget;
  /** By requests that wait until their sessions are known. */
  parked: Budget;
  /** By lines that their readers have not taken. */
  unsent: Budget;
  /** By attachments that are not in the store yet. */
  attached: Budget;
}

/** One of the messages that a final line lists. */
export interface Message {
  /** `assistant`, or `user` for what steered the turn. */
  role: string;
  /** Its text. */
  content: string;
}

export interface MessageDeltaLine {
  type: "message_delta";
  job: string;
  message: number;
  offset: number;
  text: string;
  native: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `message_end`: the turn is done. */
export interface MessageEndLine {
  type: "message_end";
  /** Why it ended. */
  stop: Stop;
  job: string | null;
  session: string | null;
  context_tokens?: number;
  context_window?: number;
  text: string;
  truncated?: boolean;
  refusal?: string;
  suspected_refusal?: boolean;
  context: Context | null;
  agent: string | null;
  provider: string | null;
  model: string | null;
  local?: boolean;
  thinking: string | null;
  usage: Usage | null;
  cost: Cost;
  api_calls: unknown[] | null;
  soul_sha256?: string;
  tool_trace: ToolTrace[];
  tool_trace_truncated?: boolean;
  attempt: number;
  queued_ms: number;
  duration_ms: number;
  served_by: string;
  fallback_reason?: string;
  messages?: Message[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
  /** Is it told again, to a request with the key of an earlier one? */
  replayed?: boolean;
}

/** One message of a turn, or a piece of it. */
export interface MessageRow {
  message: number;
  /** Bytes of the message's text before this piece. */
  offset: number;
  text: string;
  thinking?: string;
  /** Does more text follow than is given here? */
  truncated?: boolean;
}

export interface MessageStartLine {
  type: "message_start";
  job: string;
  message: number;
  role: string;
  replaces?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What becomes of due times that passed while nobody was there. */
export type Missed =
  | "skip"
  | "last"
  | "all";

/** What a send does when its session is busy. */
export type Mode =
  | "queue"
  | "reject";

/** A mode of an agent, its own way of working. `id` is what `set_model` takes. */
export interface ModeRow {
  id: string;
  label?: string;
  description?: string;
}

/** A model as its agent tells it. `provider` and `model` are what a `send` takes. */
export interface ModelRow {
  provider?: string;
  model: string;
  label?: string;
  thinking?: string[];
  input?: string[];
  context_window?: number;
  default: boolean;
}

export interface ModelsLine {
  type: "models";
  ok: boolean;
  /** Whose they are. */
  agent: string;
  models: ModelRow[];
  /** The agent's own ways of working, with the first page. */
  modes?: ModeRow[];
  /** The one that is in force. */
  mode?: string;
  next?: number;
  /** What is not as one may think: why there is none, or what was left out. */
  note?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `models`: which models an agent has, or that of a session. */
export interface ModelsRequest {
  type: "models";
  /** Whose; without, and without a session, the one that a send would go to. */
  agent?: string | null;
  /** That of this session; the default is what its next turn takes then. */
  session?: string | null;
  /** The `next` of the page before. */
  after?: number | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** A sum with its name, as it is told. */
export interface NamedSum {
  name: string | null;
  sum: Sum;
}

export interface NoteLine {
  type: "note";
  job?: string;
  level: Level;
  code: string;
  text: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What happens to a question of the agent. */
export type OnQuestion =
  | "wait"
  | "deny";

/** What becomes of a due time while the run before it goes on. */
export type Overlap =
  | "skip"
  | "queue"
  | "replace"
  | "parallel";

export interface PingRequest {
  type: "ping";
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface PongLine {
  type: "pong";
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/**
 * What a person wrote for an agent's eyes only: a password, mostly. `Debug` says nothing of it,
 * and neither does the error about one that isn't a string.
 */
export type Private = string;

export interface QuestionClosedLine {
  type: "question_closed";
  job: string;
  question_id: string;
  by: string;
  /** What was answered, in a word; never a text. */
  answer?: string;
  /** How far a yes goes, if further than once. */
  scope?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What a question is about, for programs. */
export interface QuestionLine {
  type: "question";
  job: string;
  question_id: string;
  kind: string;
  title: string;
  detail?: string;
  options: string[];
  tool_call_id?: string;
  data?: unknown;
  tool_kind?: ToolKind;
  locations?: ToolLocation[];
  /** Words of `Scope`, or of a later version's. */
  scopes?: string[];
  expires_at?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** One open question. */
export interface QuestionRow {
  question_id: string;
  job: string;
  session: string;
  kind: string;
  title: string;
  detail?: string;
  options: string[];
  tool_call_id?: string;
  data?: unknown;
  tool_kind?: ToolKind;
  locations?: ToolLocation[];
  /** Words of `Scope`, or of a later version's. */
  scopes?: string[];
  expires_at: string;
}

export interface QuestionsLine {
  type: "questions";
  ok: boolean;
  questions: QuestionRow[];
  /** Are there more than fit? Each session's own always do. */
  truncated?: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `questions`: what agents ask and nobody answered yet. */
export interface QuestionsRequest {
  type: "questions";
  /** Of one session. */
  session?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** How far a sandbox lets a command. */
export type Reach =
  | "none"
  | "own"
  | "granted"
  | "network"
  | "all"
  | "unknown";

export type Request =
  | AbortRequest
  | AgentsRequest
  | AnswerRequest
  | BackupRequest
  | CollectRequest
  | CommandsRequest
  | CompactRequest
  | CronAddRequest
  | CronEditRequest
  | CronListRequest
  | CronPauseRequest
  | CronRemoveRequest
  | CronResumeRequest
  | CronRunRequest
  | CronRunsRequest
  | DaemonStopRequest
  | DispatchRequest
  | DrainRequest
  | ExportRequest
  | HelloRequest
  | JobsRequest
  | LogLevelRequest
  | ModelsRequest
  | PingRequest
  | QuestionsRequest
  | RestartWorkerRequest
  | RouteRequest
  | SendRequest
  | SessionCloseRequest
  | SessionForkRequest
  | SessionHistoryRequest
  | SessionListRequest
  | SessionNewRequest
  | SessionRenameRequest
  | SessionResumeRequest
  | SessionSearchRequest
  | SessionTitleRequest
  | SetModelRequest
  | ShutdownRequest
  | StatusRequest
  | SteerRequest
  | SubscribeRequest
  | UndrainRequest
  | UnsubscribeRequest
  | UsageRequest
  | WebhookReplayRequest
  | WebhookTestRequest
  | WebhooksRequest;

export interface RestartWorkerLine {
  type: "restart_worker";
  ok: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `restart_worker`. */
export interface RestartWorkerRequest {
  type: "restart_worker";
  /** All processes of an agent. */
  agent?: string | null;
  /** The process of a session. */
  session?: string | null;
  /** Don't wait for running turns. */
  now?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** May the daemon run the turn again after a crash? */
export type Retry =
  | "never"
  | "auto";

/** `route`: what the routes would make of a send, of which nothing was run. */
export interface RouteLine {
  type: "route";
  /** Always. */
  ok: boolean;
  /** Who would answer. */
  agent: string;
  /** Which rule, why, and what was passed over. */
  routed: Routed;
  /** What the rule says. */
  use: RouteUse;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `send`: one user turn. PROTOCOL.md part 4 explains each field. */
export interface RouteRequest {
  type: "route";
  /** The user's turn. */
  text: string;
  /** The conversation. */
  session?: string | null;
  /** The conversation as the one asked named it: of workers only. */
  native?: string | null;
  /** Who answers. */
  agent?: string | null;
  /** Pins the model provider. */
  provider?: string | null;
  /** Pins the model. */
  model?: string | null;
  /** How hard to think, in the agent's words. */
  thinking?: string | null;
  /**
   * What to ask when the model fails, in this order; each `provider/model`, or a name that the
   * agent knows.
   */
  fallback_chain?: string[] | null;
  /** Working directory: absolute, existing. */
  cwd?: string | null;
  /** Working directory that counts only if this send makes the session. */
  cwd_if_new?: string | null;
  /** Restricts the agent's tools. */
  toolsets?: string[] | null;
  /** What the agent is told before the conversation: only with the send that begins a session. */
  system?: string | null;
  /** What was said before elsewhere, oldest first: likewise. */
  history?: Earlier[];
  /** What its session's agent has besides its own, from this turn on. */
  mcp_servers?: McpServer[] | null;
  /** Seconds it may run; 3600 when absent. */
  timeout?: number | null;
  /** Seconds it may wait; 3600 when absent. */
  expires?: number | null;
  /** The same key twice is the same job. */
  idempotency_key?: string | null;
  /** When the session is busy. */
  mode?: Mode;
  /** Send the lines between `accepted` and the final one. */
  stream?: boolean | null;
  /** Wait for somebody's answer, or deny. */
  on_question?: OnQuestion | null;
  /** Run again after a crash? */
  retry?: Retry;
  /** Refuse rather than run without the session's earlier turns. */
  require_context?: boolean;
  /** Extra members of the final line: `messages`. */
  include?: string[];
  /** Fields the sender depends on. */
  must?: string[];
  /** Free labels, for `jobs`. */
  labels?: Record<string, string>;
  /** The job from inside whose worker it comes. */
  parent?: string | null;
  /** Not before this time, RFC 3339. */
  start_at?: string | null;
  /** When a turn before it in the session was interrupted. */
  after_failure?: AfterFailure;
  /** What goes with the text. */
  attachments?: Attachment[];
  /** Who is told of its end. */
  callback?: Callback | null;
  /** Towards workers: the job's number. */
  job?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** What a rule uses, where the send doesn't say it itself. */
export interface RouteUse {
  /** Who answers. */
  agent?: string;
  /** The model provider. */
  provider?: string;
  /** The model. */
  model?: string;
  /** How hard to think, in the agent's words. */
  thinking?: string;
  /** Restricts the agent's tools. */
  toolsets?: string[];
  /** Seconds that the turn may run. */
  timeout?: number;
  /** What to ask when the model fails. */
  fallback_chain?: string[];
}

/** The decision about one turn. */
export interface Routed {
  /** The rule that decided, by its name, or as `#2` by its place; absent where none did. */
  rule?: string;
  /** Why, in a sentence. */
  because: string;
  /** The rules before it, and why each was passed over. */
  considered?: Considered[];
  /** What kind of task the prompt is, where a rule asked for it. */
  class?: string;
  /** How hard it seems, likewise. */
  difficulty?: string;
}

/** Counters since the start. */
export interface RpcFacts {
  /** Does at least one worker live? */
  live: boolean;
  in_flight: number;
  sends: number;
  failures: number;
  fallbacks: number;
  restarts: number;
  /** Processes of agents that died unasked, never came up, or hung. */
  crashes: number;
  /** The last of them, latest first: their slots may be gone. */
  last_crashes?: CrashRow[];
  p50_ms: number | null;
  p95_ms: number | null;
  /** Turns that wait. */
  queued: number;
  /** Turns whose time to start has not come. */
  scheduled: number;
  /** Turns that ran to their end. */
  turns: number;
  /** Milliseconds they ran, in all. */
  turns_ms: number;
  /** Turns that began in a process that was there already. */
  pool_hits: number;
  /** Turns for which a process had to be started. */
  pool_misses: number;
  /** New jobs by what their client calls itself in `hello`. */
  clients?: Record<string, number>;
}

/** What became of a due time. */
export type RunOutcome =
  | "job"
  | "skipped"
  | "refused";

/** One run of a schedule. */
export interface RunRow {
  due_at: string;
  outcome: RunOutcome;
  job?: string;
  /** How its job ended; none while it goes on. */
  state?: string;
  /** Of a job that failed. */
  code?: string;
  /** How its answer, or what it failed of, begins. */
  preview?: string;
  /** What it cost, where that is known. */
  usd?: number;
  /** So many milliseconds behind its due time. */
  late_ms: number;
  /** Did somebody ask for it? */
  by_hand?: boolean;
  /** Why it was left out or refused. */
  why?: string;
  /** How many due times it stands for, if more than one. */
  times?: number;
  at: string;
}

export interface RunningLine {
  type: "running";
  job: string;
  attempt: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What a tool's command could reach, as the agent that ran it says. */
export interface Sandbox {
  /** `granted` ones, or `all` of the user's. */
  files: Reach;
  /** `none`, or `all` of it. */
  network: Reach;
  /** Which processes its signals reach: its `own`, `none`, or `all` of the user's. */
  signals: Reach;
  /** Which it could make: `none`, those of the `network`, or `all`. */
  sockets: Reach;
  /** Which processes it saw, with their arguments: its `own`, or `all`. */
  processes: Reach;
}

/** One schedule of a list. */
export interface ScheduleRow {
  schedule: string;
  state: ScheduleState;
  /** Why it is paused, if agentd did that. */
  why?: string;
  /** What people call it; no two have the same. */
  name?: string;
  /** Once: RFC 3339, a local time in `tz`, or `+` and a time from now. */
  at?: string;
  /** Each so long, counted from when it was made. */
  every?: string;
  /** Five fields, as crontab has them. */
  cron?: string;
  /** The time zone by its IANA name; the machine's when absent. */
  tz?: string;
  /** Each due time comes later by up to so much, always by the same. */
  jitter?: string;
  /** Due times that passed while nobody was there. */
  missed: Missed;
  /** Due times while the run before goes on. */
  overlap: Overlap;
  /** So many runs are kept; 100 when absent. */
  keep?: number;
  /** After a run that failed so long, and twice as long after each further one. */
  backoff?: string;
  /** After so many that failed in a row it is paused. */
  max_failures?: number;
  /** What is sent each time; without `session`, in a new one. */
  send: SendRow;
  /** The next three due times, in its time zone. */
  next: string[];
  /** Runs that failed in a row, up to now. */
  failures: number;
  created_at: string;
  last?: RunRow;
}

/** Is a schedule to go on? */
export type ScheduleState =
  | "active"
  | "paused"
  | "done";

/** How far a yes to an approval goes. */
export type Scope =
  | "once"
  | "session"
  | "always";

/** `send`: one user turn. PROTOCOL.md part 4 explains each field. */
export interface Send {
  /** The user's turn. */
  text: string;
  /** The conversation. */
  session?: string | null;
  /** The conversation as the one asked named it: of workers only. */
  native?: string | null;
  /** Who answers. */
  agent?: string | null;
  /** Pins the model provider. */
  provider?: string | null;
  /** Pins the model. */
  model?: string | null;
  /** How hard to think, in the agent's words. */
  thinking?: string | null;
  /**
   * What to ask when the model fails, in this order; each `provider/model`, or a name that the
   * agent knows.
   */
  fallback_chain?: string[] | null;
  /** Working directory: absolute, existing. */
  cwd?: string | null;
  /** Working directory that counts only if this send makes the session. */
  cwd_if_new?: string | null;
  /** Restricts the agent's tools. */
  toolsets?: string[] | null;
  /** What the agent is told before the conversation: only with the send that begins a session. */
  system?: string | null;
  /** What was said before elsewhere, oldest first: likewise. */
  history?: Earlier[];
  /** What its session's agent has besides its own, from this turn on. */
  mcp_servers?: McpServer[] | null;
  /** Seconds it may run; 3600 when absent. */
  timeout?: number | null;
  /** Seconds it may wait; 3600 when absent. */
  expires?: number | null;
  /** The same key twice is the same job. */
  idempotency_key?: string | null;
  /** When the session is busy. */
  mode?: Mode;
  /** Send the lines between `accepted` and the final one. */
  stream?: boolean | null;
  /** Wait for somebody's answer, or deny. */
  on_question?: OnQuestion | null;
  /** Run again after a crash? */
  retry?: Retry;
  /** Refuse rather than run without the session's earlier turns. */
  require_context?: boolean;
  /** Extra members of the final line: `messages`. */
  include?: string[];
  /** Fields the sender depends on. */
  must?: string[];
  /** Free labels, for `jobs`. */
  labels?: Record<string, string>;
  /** The job from inside whose worker it comes. */
  parent?: string | null;
  /** Not before this time, RFC 3339. */
  start_at?: string | null;
  /** When a turn before it in the session was interrupted. */
  after_failure?: AfterFailure;
  /** What goes with the text. */
  attachments?: Attachment[];
  /** Who is told of its end. */
  callback?: Callback | null;
  /** Towards workers: the job's number. */
  job?: string | null;
}

/** `send`: one user turn. PROTOCOL.md part 4 explains each field. */
export interface SendRequest {
  type?: "send";
  /** The user's turn. */
  text: string;
  /** The conversation. */
  session?: string | null;
  /** The conversation as the one asked named it: of workers only. */
  native?: string | null;
  /** Who answers. */
  agent?: string | null;
  /** Pins the model provider. */
  provider?: string | null;
  /** Pins the model. */
  model?: string | null;
  /** How hard to think, in the agent's words. */
  thinking?: string | null;
  /**
   * What to ask when the model fails, in this order; each `provider/model`, or a name that the
   * agent knows.
   */
  fallback_chain?: string[] | null;
  /** Working directory: absolute, existing. */
  cwd?: string | null;
  /** Working directory that counts only if this send makes the session. */
  cwd_if_new?: string | null;
  /** Restricts the agent's tools. */
  toolsets?: string[] | null;
  /** What the agent is told before the conversation: only with the send that begins a session. */
  system?: string | null;
  /** What was said before elsewhere, oldest first: likewise. */
  history?: Earlier[];
  /** What its session's agent has besides its own, from this turn on. */
  mcp_servers?: McpServer[] | null;
  /** Seconds it may run; 3600 when absent. */
  timeout?: number | null;
  /** Seconds it may wait; 3600 when absent. */
  expires?: number | null;
  /** The same key twice is the same job. */
  idempotency_key?: string | null;
  /** When the session is busy. */
  mode?: Mode;
  /** Send the lines between `accepted` and the final one. */
  stream?: boolean | null;
  /** Wait for somebody's answer, or deny. */
  on_question?: OnQuestion | null;
  /** Run again after a crash? */
  retry?: Retry;
  /** Refuse rather than run without the session's earlier turns. */
  require_context?: boolean;
  /** Extra members of the final line: `messages`. */
  include?: string[];
  /** Fields the sender depends on. */
  must?: string[];
  /** Free labels, for `jobs`. */
  labels?: Record<string, string>;
  /** The job from inside whose worker it comes. */
  parent?: string | null;
  /** Not before this time, RFC 3339. */
  start_at?: string | null;
  /** When a turn before it in the session was interrupted. */
  after_failure?: AfterFailure;
  /** What goes with the text. */
  attachments?: Attachment[];
  /** Who is told of its end. */
  callback?: Callback | null;
  /** Towards workers: the job's number. */
  job?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** `send`: one user turn. PROTOCOL.md part 4 explains each field. */
export interface SendRow {
  /** The user's turn. */
  text: string;
  /** The conversation. */
  session?: string;
  /** The conversation as the one asked named it: of workers only. */
  native?: string;
  /** Who answers. */
  agent?: string;
  /** Pins the model provider. */
  provider?: string;
  /** Pins the model. */
  model?: string;
  /** How hard to think, in the agent's words. */
  thinking?: string;
  /**
   * What to ask when the model fails, in this order; each `provider/model`, or a name that the
   * agent knows.
   */
  fallback_chain?: string[];
  /** Working directory: absolute, existing. */
  cwd?: string;
  /** Working directory that counts only if this send makes the session. */
  cwd_if_new?: string;
  /** Restricts the agent's tools. */
  toolsets?: string[];
  /** What the agent is told before the conversation: only with the send that begins a session. */
  system?: string;
  /** What was said before elsewhere, oldest first: likewise. */
  history?: EarlierRow[];
  /** What its session's agent has besides its own, from this turn on. */
  mcp_servers?: McpServer[];
  /** Seconds it may run; 3600 when absent. */
  timeout?: number;
  /** Seconds it may wait; 3600 when absent. */
  expires?: number;
  /** The same key twice is the same job. */
  idempotency_key?: string;
  /** When the session is busy. */
  mode: Mode;
  /** Send the lines between `accepted` and the final one. */
  stream?: boolean;
  /** Wait for somebody's answer, or deny. */
  on_question?: OnQuestion;
  /** Run again after a crash? */
  retry: Retry;
  /** Refuse rather than run without the session's earlier turns. */
  require_context: boolean;
  /** Extra members of the final line: `messages`. */
  include?: string[];
  /** Fields the sender depends on. */
  must?: string[];
  /** Free labels, for `jobs`. */
  labels?: Record<string, string>;
  /** The job from inside whose worker it comes. */
  parent?: string;
  /** Not before this time, RFC 3339. */
  start_at?: string;
  /** When a turn before it in the session was interrupted. */
  after_failure: AfterFailure;
  /** What goes with the text. */
  attachments?: AttachmentRow[];
  /** Who is told of its end. */
  callback?: Callback;
  /** Towards workers: the job's number. */
  job?: string;
}

/** What is otherwise with a session. */
export type SessionChange =
  | "made"
  | "titled"
  | "renamed"
  | "model"
  | "state"
  | "closed"
  | "missed"
  | "other";

/** `session_changed`: a session was made, or is otherwise than it was. It has no number. */
export interface SessionChangedLine {
  type: "session_changed";
  /** Which; none of `missed`. */
  session?: string;
  /** What is otherwise. */
  change: SessionChange;
  agent?: string;
  cwd?: string;
  /** Whose copy it is. */
  from?: string;
  title?: string;
  /** As it was called. */
  was?: string;
  provider?: string;
  model?: string;
  thinking?: string;
  mode?: string;
  state?: SessionPhase;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface SessionCloseLine {
  type: "session.close";
  ok: boolean;
  session: string;
  /** By which its past is read from now on; none when somebody else had closed it before. */
  closed_as?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** A session by its name: `session.close`, `session.resume`. */
export interface SessionCloseRequest {
  type: "session.close";
  /** Which. */
  session: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SessionForkLine {
  type: "session.fork";
  ok: boolean;
  /** The new one. */
  session: string;
  /** The one that it begins with. */
  from: string;
  agent: string;
  cwd: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.fork`: another session that begins with what the agent remembers of this one. */
export interface SessionForkRequest {
  type: "session.fork";
  /** Which. */
  session: string;
  /** What the new one is called; a name is made when absent. */
  to?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SessionHistoryLine {
  type: "session.history";
  ok: boolean;
  session: string;
  turns: TurnRow[];
  next?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.history`: what was said, oldest first; or one message from some byte on. */
export interface SessionHistoryRequest {
  type: "session.history";
  /** Which; of one that was closed its `closed_as`, too. */
  session: string;
  /** One turn. */
  job?: string | null;
  /** With `job`: one message of it, whole, in pieces. */
  message?: number | null;
  /** The `next` of the page before: a job's number, with `message` a byte offset. */
  after?: number | null;
  /** At most so many turns; 50 when absent. */
  limit?: number | null;
  /** With what happened besides: tools, questions, notes. */
  events?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SessionLine {
  type: "session";
  native: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface SessionListLine {
  type: "session.list";
  ok: boolean;
  sessions: SessionRow[];
  next?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.list`: in the order they were made. */
export interface SessionListRequest {
  type: "session.list";
  /** Only this one, also when it was closed, while no other has its name, or by its `closed_as`. */
  session?: string | null;
  /** Of one agent. */
  agent?: string | null;
  /** In one directory, as it was named or as it really is. */
  cwd?: string | null;
  /** With nothing to do for so many seconds. */
  idle_for?: number | null;
  /** Those used last first: one page, without a next. */
  newest?: boolean;
  /** Only those that were closed, and none of the others; with `session` the last of that name. */
  closed?: boolean;
  /** At most so many; 50 when absent. */
  limit?: number | null;
  /** The `next` of the page before. */
  after?: number | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SessionNewLine {
  type: "session.new";
  ok: boolean;
  session: string;
  agent: string;
  cwd: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.new`: a session without a turn. */
export interface SessionNewRequest {
  type: "session.new";
  /** Its name; one is made when absent. */
  session?: string | null;
  /** Who answers. */
  agent?: string | null;
  /** Working directory: absolute, existing. */
  cwd?: string | null;
  /** Restricts the agent's tools. */
  toolsets?: string[] | null;
  /** What the agent is told before the conversation. */
  system?: string | null;
  /** What it has besides its own. */
  mcp_servers?: McpServer[] | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** What a session is doing. */
export type SessionPhase =
  | "idle"
  | "starting"
  | "working"
  | "waiting"
  | "held"
  | "closed";

export interface SessionRenameLine {
  type: "session.rename";
  ok: boolean;
  /** As it is called now. */
  session: string;
  /** As it was called. */
  was: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.rename`: another name for a session that has nothing to do. */
export interface SessionRenameRequest {
  type: "session.rename";
  /** Which. */
  session: string;
  /** What it is called from now on. */
  to: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SessionResumeLine {
  type: "session.resume";
  ok: boolean;
  session: string;
  /** That were held and aren't any more. */
  jobs: string[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** A session by its name: `session.close`, `session.resume`. */
export interface SessionResumeRequest {
  type: "session.resume";
  /** Which. */
  session: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** One session of a list. */
export interface SessionRow {
  session: string;
  agent: string;
  cwd: string;
  state: SessionPhase;
  /** The beginning of its first prompt. */
  title: string;
  /** The beginning of its last answer. */
  preview: string;
  model: string | null;
  turns: number;
  /** Tokens in its context after the last turn whose agent said so. */
  context_tokens?: number;
  /** Tokens that fit into it. */
  context_window?: number;
  created_at: string;
  last_active_at: string;
  /** Seconds since then, as far as the daemon saw them pass, whatever its clock was set to. */
  idle_s?: number;
  /** Of one that was closed, the name by which its past is read when another one has its own. */
  closed_as?: string;
}

export interface SessionSearchLine {
  type: "session.search";
  ok: boolean;
  turns: FoundRow[];
  next?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.search`: turns with all these words in the prompt or the answer, newest first. */
export interface SessionSearchRequest {
  type: "session.search";
  /** 1 to [`Self::MOST_WORDS`] of them; capital and small letters are the same. */
  words: string[];
  /** Of one session. */
  session?: string | null;
  /** At most so many turns; 50 when absent. */
  limit?: number | null;
  /** Older than this one: the `next` of the page before. */
  before?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SessionTitleLine {
  type: "session.title";
  ok: boolean;
  session: string;
  title: string | null;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `session.title`: what a session is called in lists. */
export interface SessionTitleRequest {
  type: "session.title";
  /** Which. */
  session: string;
  /** Its title from now on; without one it is how its first prompt begins. */
  title?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SetModelLine {
  type: "set_model";
  ok: boolean;
  session: string;
  provider: string | null;
  model: string | null;
  thinking: string | null;
  /** The agent's own way of working, where one was set. */
  mode?: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/**
 * `set_model`: for the turns of a session accepted after it; its mode for those that begin after it.
 * At least one of model, thinking and mode; what isn't named stays.
 */
export interface SetModelRequest {
  type: "set_model";
  /** Which. */
  session: string;
  /** The model provider. */
  provider?: string | null;
  /** The model. */
  model?: string | null;
  /** How hard to think. */
  thinking?: string | null;
  /** In which of the agent's own modes to work. */
  mode?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface ShutdownLine {
  type: "shutdown";
  ok: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface ShutdownRequest {
  type: "shutdown";
  /** Comes back in every line about it. */
  id?: unknown;
}

/** Why nobody answered a question. */
export type Silence =
  | "expiry"
  | "nobody"
  | "cancel"
  | "other";

/** Processes that were started before anybody asked for them, though none are configured. */
export interface SpareFacts {
  /** How many there are. */
  processes: number;
  /** What they take together, as measured last, and may take. */
  memory: Budget;
  /** Why there are none now, or not as many as agents are in use. */
  held?: string;
}

/** Who said something. */
export type Speaker =
  | "user"
  | "assistant";

/** `status`'s answer. */
export interface StatusLine {
  type: "status";
  ok: boolean;
  details: string;
  state: DaemonState;
  daemon: DaemonFacts;
  rpc: RpcFacts;
  workers?: WorkerRow[];
  store: StoreFacts;
  memory?: MemoryFacts;
  spares?: SpareFacts;
  questions: number;
  /** A worker only: can its sessions be reopened? */
  resumes?: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `status`. */
export interface StatusRequest {
  type: "status";
  /** List the workers, too. */
  workers?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface SteerLine {
  type: "steer";
  ok: boolean;
  job: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/**
 * `steer`: a word to a running turn. Without a target, this connection's last send, else the only
 * live one.
 */
export interface SteerRequest {
  type: "steer";
  /** The turn in flight of a session. */
  session?: string | null;
  /** One job. */
  job?: string | null;
  /** What to tell it. */
  text: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** Why a turn ended, in the words of the Agent Client Protocol. */
export type Stop =
  | "end_turn"
  | "max_tokens"
  | "max_turn_requests"
  | "refusal"
  | "cancelled";

/** The store's size. */
export interface StoreFacts {
  jobs: number;
  open: number;
  events: number;
  bytes: number;
  wal_bytes: number;
}

/** `subscribe`; without a filter, everything. */
export interface SubscribeRequest {
  type: "subscribe";
  /** One session. */
  session?: string | null;
  /** Some jobs. */
  jobs?: string[] | null;
  /** A cursor: numbered lines after this one come first; 0 is the beginning. */
  after?: number | null;
  /** The cursor's epoch: of another one, it is refused. */
  epoch?: string | null;
  /** What becomes of sessions, too. */
  sessions?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** What some turns used together. */
export interface Sum {
  /** Turns that ended. */
  turns: number;
  /** That failed, or were interrupted. */
  failed: number;
  /** That were cancelled. */
  cancelled: number;
  /** Answered by models on the user's own machines, and by no other. */
  local: number;
  /** Answered elsewhere, if only in part. The rest had no model's answer, or nobody knows whose. */
  hosted: number;
  /** Of all kinds of input, what was cached too. */
  input_tokens: number;
  /** Reasoning included where the agent counts it so. */
  output_tokens: number;
  /** Both, of local models. */
  local_tokens: number;
  /** Both, of other ones. */
  hosted_tokens: number;
  /** US dollars, as far as known. */
  usd: number;
  /** Turns whose cost nobody knows. */
  cost_unknown: number;
  /** Milliseconds that a turn took once it had begun, in the mean. */
  mean_ms: number;
  /** Most took no longer. */
  p95_ms: number;
}

/** Texts by their names. With a name of its own, as generators of clients fail at one without. */
export type Texts = Record<string, string>;

export interface ThinkingDeltaLine {
  type: "thinking_delta";
  job: string;
  message: number;
  offset: number;
  text: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface ToolEndLine {
  type: "tool_end";
  job: string;
  tool_call_id: string;
  ok: boolean;
  output: string;
  truncated: boolean;
  duration_ms: number;
  sandbox?: Sandbox;
  diff?: FileChange[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What a tool does, in the words of the Agent Client Protocol. */
export type ToolKind =
  | "read"
  | "edit"
  | "delete"
  | "move"
  | "search"
  | "execute"
  | "think"
  | "fetch"
  | "other";

/** A file that a tool call is about. */
export interface ToolLocation {
  /** As the agent names it. */
  path: string;
  /** From 1. */
  line?: number;
}

export interface ToolStartLine {
  type: "tool_start";
  job: string;
  tool_call_id: string;
  name: string;
  input: unknown;
  read_only: boolean;
  kind: ToolKind;
  locations?: ToolLocation[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** One tool call of a turn. */
export interface ToolTrace {
  tool_call_id: string;
  name: string;
  input: unknown;
  ok: boolean | null;
  output: string;
  truncated: boolean;
  duration_ms: number | null;
  sandbox?: Sandbox;
  kind: ToolKind;
  locations?: ToolLocation[];
  diff?: FileChange[];
}

export interface ToolUpdateLine {
  type: "tool_update";
  job: string;
  tool_call_id: string;
  offset: number;
  output: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** One turn of a session's history. */
export interface TurnRow {
  job: string;
  state: JobPhase;
  accepted_at: string;
  /** The user's turn. */
  text: string;
  truncated?: boolean;
  /** What went with it, without its content. */
  attachments?: AttachmentRow[];
  messages: MessageRow[];
  /** The numbered lines between, to whoever asked for them. */
  events?: Line[];
  /** Are there more than are given here? */
  events_truncated?: boolean;
  /** The final line; `None` while the turn is in flight or waits. */
  final: FinalLine | null;
  /** Open ones, of the turn in flight. */
  questions?: QuestionRow[];
  /**
   * The send as it was stored, to whoever asks for this one turn; `None` when it is too long for
   * that.
   */
  request?: unknown;
}

export interface UndrainLine {
  type: "undrain";
  ok: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface UndrainRequest {
  type: "undrain";
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface UnsubscribeLine {
  type: "unsubscribe";
  ok: boolean;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

export interface UnsubscribeRequest {
  type: "unsubscribe";
  /** Comes back in every line about it. */
  id?: unknown;
}

/**
 * Tokens of a turn. What was cached is part of the input and reasoning of the output, as in
 * OpenTelemetry's conventions for generative AI.
 */
export interface Usage {
  /** All of the input. */
  input_tokens: number;
  /** All of the output. */
  output_tokens: number;
  /** Of the input, what was read from a cache. */
  cache_read_tokens: number;
  /** Of the input, what was written to a cache. */
  cache_write_tokens: number;
  /** Of the output, what was thought. */
  reasoning_tokens: number;
}

export interface UsageLine {
  type: "usage";
  ok: boolean;
  /** Each a [`crate::rows::UsageRow`]. */
  turns: UsageRow[];
  next?: string;
  /** In place of the turns, to whoever asked `by` something. */
  total?: Sum;
  sums?: NamedSum[];
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** What another model than the last one used of a turn. */
export interface UsagePart {
  provider: string;
  model: string | null;
  /** `None` where nobody knows. */
  local?: boolean;
  usage: Usage;
  usd: number | null;
}

/** `usage`: what turns that have ended used, newest first, in pages as large as a line takes. */
export interface UsageRequest {
  type: "usage";
  /** Accepted no longer ago than so many seconds. */
  since?: number | null;
  /** Older than this one: the `next` of the page before. */
  before?: string | null;
  /** Added up by this, rather than each by itself, where that is quick. */
  by?: By | null;
  /** Only in this session. */
  session?: string | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** What one ended turn used: enough to add up by any of it, and nothing that was said. */
export interface UsageRow {
  job: string;
  accepted_at: string;
  agent: string;
  /** A closed one under the name that it had. */
  session?: string;
  provider: string | null;
  model: string | null;
  /** `None` where nobody knows. */
  local: boolean | null;
  state: JobPhase;
  code?: string;
  usage: Usage | null;
  cost: Cost;
  others?: UsagePart[];
  queued_ms: number;
  duration_ms: number;
}

/** What a `collect` waits for. */
export type Wait =
  | "all"
  | "any";

export interface WebhookReplayLine {
  type: "webhook.replay";
  ok: boolean;
  webhook: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `webhook.replay`: send one again now, whatever became of it. */
export interface WebhookReplayRequest {
  type: "webhook.replay";
  /** Its id, `evt_…`. */
  webhook: string;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface WebhookTestLine {
  type: "webhook.test";
  ok: boolean;
  webhook: string;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** Who is told of a job's end; the whole of `webhook.test`, too. */
export interface WebhookTestRequest {
  type: "webhook.test";
  /** Where to, http or https. */
  url: string;
  /** Is the text told, too? */
  result?: boolean;
  /** Comes back in every line about it. */
  id?: unknown;
}

export interface WebhooksLine {
  type: "webhooks";
  ok: boolean;
  endpoints: EndpointRow[];
  /** Each a [`crate::webhook::DeliveryRow`]. */
  deliveries: DeliveryRow[];
  next?: number;
  /** That of the request. */
  id?: unknown;
  /** Its number in the store, if it has one. */
  seq?: number;
}

/** `webhooks`: the endpoints, and deliveries, newest first. */
export interface WebhooksRequest {
  type: "webhooks";
  /** Only those so far. */
  state?: DeliveryState | null;
  /** Only this one. */
  webhook?: string | null;
  /** At most so many; 50 when absent. */
  limit?: number | null;
  /** The `next` of the page before. */
  before?: number | null;
  /** Comes back in every line about it. */
  id?: unknown;
}

/** One process slot. */
export interface WorkerRow {
  worker: number;
  agent: string;
  session: string | null;
  state: WorkerState;
  pid: number | null;
  generation: number;
  restarts: number;
  last_exit: string | null;
  last_error: string | null;
  uptime_s: number;
  in_flight: number;
  queued: number;
  last_ok_at: string | null;
  /** Was it started before anybody asked for it, and not used yet? */
  spare?: boolean;
  live: boolean;
  turns: number;
  failures: number;
  p50_ms: number | null;
  p95_ms: number | null;
}

/** Of a process slot. */
export type WorkerState =
  | "starting"
  | "idle"
  | "busy"
  | "settling"
  | "backoff"
  | "stopping"
  | "crash-looped"
  | "failed";

/** Each request and the line that answers it, unless that is an `error`. */
export interface Requests {
  abort: { request: AbortRequest; answer: AbortLine };
  agents: { request: AgentsRequest; answer: AgentsLine };
  answer: { request: AnswerRequest; answer: AnswerLine };
  backup: { request: BackupRequest; answer: BackupLine };
  collect: { request: CollectRequest; answer: CollectLine };
  commands: { request: CommandsRequest; answer: CommandsLine };
  compact: { request: CompactRequest; answer: CompactLine };
  "cron.add": { request: CronAddRequest; answer: CronAddLine };
  "cron.edit": { request: CronEditRequest; answer: CronEditLine };
  "cron.list": { request: CronListRequest; answer: CronListLine };
  "cron.pause": { request: CronPauseRequest; answer: CronPauseLine };
  "cron.remove": { request: CronRemoveRequest; answer: CronRemoveLine };
  "cron.resume": { request: CronResumeRequest; answer: CronResumeLine };
  "cron.run": { request: CronRunRequest; answer: CronRunLine };
  "cron.runs": { request: CronRunsRequest; answer: CronRunsLine };
  "daemon.stop": { request: DaemonStopRequest; answer: DaemonStopLine };
  dispatch: { request: DispatchRequest; answer: DispatchLine };
  drain: { request: DrainRequest; answer: DrainLine };
  export: { request: ExportRequest; answer: ExportLine };
  hello: { request: HelloRequest; answer: HelloLine };
  jobs: { request: JobsRequest; answer: JobsLine };
  log_level: { request: LogLevelRequest; answer: LogLevelLine };
  models: { request: ModelsRequest; answer: ModelsLine };
  ping: { request: PingRequest; answer: PongLine };
  questions: { request: QuestionsRequest; answer: QuestionsLine };
  restart_worker: { request: RestartWorkerRequest; answer: RestartWorkerLine };
  route: { request: RouteRequest; answer: RouteLine };
  send: { request: SendRequest; answer: MessageEndLine };
  "session.close": { request: SessionCloseRequest; answer: SessionCloseLine };
  "session.fork": { request: SessionForkRequest; answer: SessionForkLine };
  "session.history": { request: SessionHistoryRequest; answer: SessionHistoryLine };
  "session.list": { request: SessionListRequest; answer: SessionListLine };
  "session.new": { request: SessionNewRequest; answer: SessionNewLine };
  "session.rename": { request: SessionRenameRequest; answer: SessionRenameLine };
  "session.resume": { request: SessionResumeRequest; answer: SessionResumeLine };
  "session.search": { request: SessionSearchRequest; answer: SessionSearchLine };
  "session.title": { request: SessionTitleRequest; answer: SessionTitleLine };
  set_model: { request: SetModelRequest; answer: SetModelLine };
  shutdown: { request: ShutdownRequest; answer: ShutdownLine };
  status: { request: StatusRequest; answer: StatusLine };
  steer: { request: SteerRequest; answer: SteerLine };
  subscribe: { request: SubscribeRequest; answer: LiveLine };
  undrain: { request: UndrainRequest; answer: UndrainLine };
  unsubscribe: { request: UnsubscribeRequest; answer: UnsubscribeLine };
  usage: { request: UsageRequest; answer: UsageLine };
  "webhook.replay": { request: WebhookReplayRequest; answer: WebhookReplayLine };
  "webhook.test": { request: WebhookTestRequest; answer: WebhookTestLine };
  webhooks: { request: WebhooksRequest; answer: WebhooksLine };
}

/** What holds for each request, whatever it says. */
export const REQUESTS = {
  abort: { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  agents: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  answer: { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  backup: { changes: true, takes_long: true, from_worker: true, from_send_only_key: false },
  collect: { changes: false, takes_long: true, from_worker: true, from_send_only_key: false },
  commands: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  compact: { changes: true, takes_long: true, from_worker: true, from_send_only_key: false },
  "cron.add": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "cron.edit": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "cron.list": { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  "cron.pause": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "cron.remove": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "cron.resume": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "cron.run": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "cron.runs": { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  "daemon.stop": { changes: true, takes_long: true, from_worker: false, from_send_only_key: false },
  dispatch: { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  drain: { changes: true, takes_long: true, from_worker: false, from_send_only_key: false },
  export: { changes: false, takes_long: true, from_worker: true, from_send_only_key: false },
  hello: { changes: false, takes_long: false, from_worker: true, from_send_only_key: true },
  jobs: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  log_level: { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  models: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  ping: { changes: false, takes_long: false, from_worker: true, from_send_only_key: true },
  questions: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  restart_worker: { changes: true, takes_long: true, from_worker: false, from_send_only_key: false },
  route: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  send: { changes: true, takes_long: false, from_worker: true, from_send_only_key: true },
  "session.close": { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.fork": { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.history": { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.list": { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.new": { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.rename": { changes: true, takes_long: true, from_worker: true, from_send_only_key: false },
  "session.resume": { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.search": { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  "session.title": { changes: true, takes_long: false, from_worker: true, from_send_only_key: false },
  set_model: { changes: true, takes_long: true, from_worker: false, from_send_only_key: false },
  shutdown: { changes: false, takes_long: false, from_worker: true, from_send_only_key: true },
  status: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  steer: { changes: true, takes_long: true, from_worker: true, from_send_only_key: false },
  subscribe: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  undrain: { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  unsubscribe: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  usage: { changes: false, takes_long: false, from_worker: true, from_send_only_key: false },
  "webhook.replay": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  "webhook.test": { changes: true, takes_long: false, from_worker: false, from_send_only_key: false },
  webhooks: { changes: false, takes_long: false, from_worker: false, from_send_only_key: false },
} as const;

/** The members of a send, by all their names. */
export const SEND_FIELDS = [
  "type",
  "text",
  "session",
  "native",
  "agent",
  "provider",
  "model",
  "thinking",
  "fallback_chain",
  "cwd",
  "cwd_if_new",
  "toolsets",
  "system",
  "history",
  "mcp_servers",
  "timeout",
  "expires",
  "idempotency_key",
  "mode",
  "stream",
  "on_question",
  "retry",
  "require_context",
  "include",
  "must",
  "labels",
  "parent",
  "start_at",
  "after_failure",
  "attachments",
  "callback",
  "job",
  "prompt",
  "message",
  "tools",
  "id",
] as const;

/** Every code of an `error`. */
export const CODES = [
  "frame-too-long",
  "bad-utf8",
  "bad-json",
  "not-an-object",
  "truncated",
  "unknown-command",
  "invalid-request",
  "ambiguous",
  "unknown-agent",
  "no-agent",
  "unknown-session",
  "unknown-job",
  "unknown-question",
  "unknown-webhook",
  "already-answered",
  "session-busy",
  "session-idle",
  "session-conflict",
  "queue-full",
  "outcome-unknown",
  "too-many-connections",
  "draining",
  "idempotency-conflict",
  "unsupported",
  "forbidden",
  "context-lost",
  "agent-failed",
  "agent-auth",
  "no-model",
  "rate-limit",
  "context-overflow",
  "output-limit",
  "worker-start-failed",
  "worker-exited",
  "worker-unresponsive",
  "crash-looped",
  "interrupted",
  "timeout",
  "expired",
  "disk-full",
  "store-failed",
  "needs-daemon",
  "cursor-expired",
  "cursor-invalid",
  "internal",
  "unknown",
] as const satisfies readonly Code[];
