//! The limits of the wire, each with its reason.
//!
//! Every number is from PROTOCOL.md part 1; the daemon announces them in `hello`.

/// Longest line to the daemon in bytes, its end not counted: larger payloads go by path.
pub const MAX_LINE_IN: usize = 16 * 1024 * 1024;
/// Longest line from the daemon in bytes, so that any client can read with a fixed buffer.
pub const MAX_LINE_OUT: usize = 1024 * 1024;
/// Partial lines of all connections together, in bytes: many slow senders can't exhaust memory.
pub const MAX_PARTIAL: usize = 64 * 1024 * 1024;
/// Deepest nesting of a line: deeper ones are broken or hostile, and recursion has a stack.
pub const MAX_DEPTH: usize = 64;
/// Longest `id` in bytes as written: it is kept and echoed for every line of a request.
pub const MAX_ID: usize = 256;
/// A decoder's buffer starts at this many bytes and grows on demand.
pub const FIRST_BUFFER: usize = 4 * 1024;
/// Longest `text` of a line from the daemon, counted as encoded bytes.
pub const MAX_TEXT: usize = 512 * 1024;
/// Longest tool output in a line, counted as encoded bytes (head and tail are kept).
pub const MAX_TOOL_OUTPUT: usize = 16 * 1024;
/// Longest tool trace of a final line, counted as encoded bytes.
pub const MAX_TOOL_TRACE: usize = 256 * 1024;
/// Longest sentence and longest hint of a refusal: it may repeat what was asked, six bytes for one, and
/// is told in a line of at most [`MAX_LINE_OUT`].
pub const MAX_REFUSAL: usize = 16 * 1024;
/// Longest title of a question, counted as encoded bytes: sixteen questions fit into a line.
pub const MAX_QUESTION_TITLE: usize = 2 * 1024;
/// Longest detail of a question, counted as encoded bytes. The daemon cuts a longer one.
pub const MAX_QUESTION_DETAIL: usize = 16 * 1024;
/// Longest session name.
pub const MAX_SESSION_NAME: usize = 128;
/// Longest title of a session in bytes, as a person gives it: it stands in lists.
pub const MAX_TITLE: usize = 256;
/// Longest idempotency key in bytes.
pub const MAX_KEY: usize = 255;
/// Jobs of one `dispatch`: all in one commit, and one answer.
pub const MAX_DISPATCH: usize = 256;
/// Rows of one page of any list.
pub const MAX_PAGE: usize = 500;
/// Longest system text of a session in bytes: agents take it as an argument of their command, of which
/// Linux allows 128 KiB, and send it with each request to a model.
pub const MAX_SYSTEM: usize = 64 * 1024;
/// Earlier messages that a session can begin with: whoever has more of them has a conversation that no
/// model takes.
pub const MAX_HISTORY: usize = 1000;
/// Bytes of all their texts: they become a part of a prompt.
pub const MAX_HISTORY_BYTES: usize = 1024 * 1024;
/// MCP servers of a session: each is a program or a connection for as long as its agent's process lives.
pub const MAX_MCP_SERVERS: usize = 32;
/// Bytes of all of them, as JSON: they are in memory with their session.
pub const MAX_MCP_BYTES: usize = 64 * 1024;
/// Longest name of one: with that of a tool, models take 64 bytes.
pub const MAX_MCP_NAME: usize = 48;
/// Models to fall back to: nobody waits for more of them, and each is shown.
pub const MAX_FALLBACKS: usize = 16;
/// Attachments of one send: more than any model looks at together.
pub const MAX_ATTACHMENTS: usize = 16;
/// Bytes of one attachment, decoded: what model providers take of one picture.
pub const MAX_ATTACHMENT: usize = 5 * 1024 * 1024;
/// Bytes of all attachments of one request, decoded: in base64 they fit into a line.
pub const MAX_ATTACHED: usize = 8 * 1024 * 1024;
/// Longest name of an attachment in bytes, as file systems have it.
pub const MAX_ATTACHMENT_NAME: usize = 255;
/// Labels of one job.
pub const MAX_LABELS: usize = 16;
/// Longest key and longest value of a label, in bytes.
pub const MAX_LABEL: usize = 128;
/// Longest URL of a callback in bytes: what most servers take.
pub const MAX_URL: usize = 2048;
