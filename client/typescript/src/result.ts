// What became of a turn.
//
// Owns the names of its parts; the words are those of the final line in `client/PROTOCOL.md`.

import type { AgentdError } from "./errors.js";
import { ofLine } from "./refusals.js";
import type { Context, Cost, Message, MessageEndLine, NoteLine, Stop, ToolTrace, Usage } from "./protocol.js";
import type { Came, Final } from "./wire.js";
import { isObject } from "./wire.js";

/** What a person would want to know of a turn. */
export type Note = Pick<NoteLine, "level" | "code" | "text">;

/**
 * The final line of a turn, well or not; as a string it is what the agent said.
 *
 * `runSession` and `dispatch` throw for a turn that failed; `collect` gives it back, with `error` set
 * and what it had said and done so far.
 */
export class Result {
  /** What the agent said last. */
  readonly final_response: string;
  /** Why it ended; absent for a failure. */
  readonly stop: Stop | undefined;
  readonly job: string | undefined;
  readonly session: string | undefined;
  readonly agent: string | undefined;
  readonly provider: string | undefined;
  readonly model: string | undefined;
  /** Everything that was said, without the prompt: of `assistant`, or of `user` for words that steered the turn. */
  readonly messages: Message[];
  /** Each tool call. */
  readonly tool_trace: ToolTrace[];
  /** Each request to a model; absent where the agent reports none. */
  readonly api_calls: unknown[] | undefined;
  /** Tokens; absent where the agent reports none. */
  readonly usage: Usage | undefined;
  readonly cost: Cost;
  /** Did the turn have the session's earlier turns? */
  readonly context: Context | undefined;
  /** Tokens in the session's context after the turn; absent where the agent doesn't say. */
  readonly context_tokens: number | undefined;
  /** Tokens that fit into it. */
  readonly context_window: number | undefined;
  readonly queued_ms: number;
  readonly duration_ms: number;
  /** `daemon`, or `oneshot` when none was running. */
  readonly served_by: string | undefined;
  /** Was it the job of an earlier request with the same key? */
  readonly replayed: boolean;
  readonly error: AgentdError | undefined;
  /** With `stop` `refusal`: the words of the model or its provider, where there are any. */
  readonly refusal: string | undefined;
  /** Does the text read like a refusal, though the turn ended as others do? */
  readonly suspected_refusal: boolean;
  /** What a person would want to know of the turn. Only one that was streamed has heard them. */
  readonly notes: Note[] = [];
  /** The whole line, with what a newer daemon may say. */
  readonly raw: Final;

  /** Reads a final line. Members that are missing are empty. */
  constructor(line: Final) {
    this.final_response = line.text ?? "";
    this.stop = "stop" in line ? (line.stop ?? undefined) : undefined;
    this.job = line.job ?? undefined;
    this.session = line.session ?? undefined;
    this.agent = line.agent ?? undefined;
    this.provider = line.provider ?? undefined;
    this.model = line.model ?? undefined;
    this.messages = line.messages ?? [];
    this.tool_trace = line.tool_trace ?? [];
    this.api_calls = line.api_calls ?? undefined;
    this.usage = line.usage ?? undefined;
    this.cost = { usd: null, status: "unknown", ...(isObject(line.cost) && (line.cost as Partial<Cost>)) };
    this.context = line.context ?? undefined;
    this.context_tokens = line.context_tokens ?? undefined;
    this.context_window = line.context_window ?? undefined;
    this.queued_ms = line.queued_ms ?? 0;
    this.duration_ms = line.duration_ms ?? 0;
    this.served_by = line.served_by ?? undefined;
    this.replayed = Boolean(line.replayed);
    this.refusal = line.refusal ?? undefined;
    this.suspected_refusal = Boolean(line.suspected_refusal);
    this.raw = line;
    this.error = line.type === "error" ? ofLine(line as Came) : undefined;
    if (this.error) this.error.result = this;
  }

  /** The same for a line of which nothing is known. */
  static of(came: Came): Result {
    return new Result(came as Partial<MessageEndLine>);
  }

  /** Did the turn end by itself, neither failed, cancelled nor refused? */
  get ok(): boolean {
    return !this.error && this.stop !== "cancelled" && this.stop !== "refusal";
  }

  /** Itself, or the failure as an exception. */
  orThrow(): this {
    if (this.error) throw this.error;
    return this;
  }

  toString(): string {
    return this.final_response;
  }
}
