// AI agents through agentd, the daemon of this machine.
//
//     import { runSession } from "agentd";
//     console.log(String(await runSession("hello", { agent: "timmy", provider: "echo" })));

export * from "./errors.js";
export { Harness, runSession } from "./harness.js";
export type { Askable, FieldsOf, HarnessOptions, Target } from "./harness.js";
export type { Attachment, Leaving, Options, Send } from "./options.js";
export { CODES, REQUESTS } from "./protocol.js";
export type {
  AgentRow as Agent,
  Code,
  Context,
  Cost,
  JobPhase,
  JobRow as Job,
  Line as Event,
  Message,
  CommandRow as Command,
  ModelRow as Model,
  ModeRow as Mode,
  QuestionRow as Question,
  Requests,
  Scope,
  SessionRow as SessionInfo,
  StatusLine as Status,
  Stop,
  ToolTrace,
  TurnRow as HistoryTurn,
  Usage as Tokens,
  UsageRow as Usage,
} from "./protocol.js";
export { BY_CODE } from "./refusals.js";
export { Result } from "./result.js";
export type { Note } from "./result.js";
export { Session } from "./session.js";
export { Stream } from "./stream.js";
export { VERSION } from "./version.js";
