// Is a line what the protocol's JSON Schema says, and nothing more?
//
// Owns as much of JSON Schema as that document uses. Must not know any line.

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { REPOSITORY } from "./support.js";

type Schema = Record<string, unknown> & {
  $defs?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
};

export interface Document extends Schema {
  $defs: Record<string, Schema>;
  requests: Record<string, { request: string; answer: string }>;
}

export const DOCUMENT = JSON.parse(
  readFileSync(join(REPOSITORY, "client", "protocol", "schema.json"), "utf8"),
) as Document;

/** What is wrong with a value, or nothing. A member that the schema doesn't name is wrong, too. */
export function wrong(value: unknown, name: string): string | undefined {
  return problem(value, { $ref: `#/$defs/${name}` }, name);
}

const KNOWN = [
  ...["$ref", "type", "const", "enum", "oneOf", "anyOf", "required", "properties", "items", "additionalProperties"],
  ...["pattern", "minimum", "maximum", "minItems", "maxItems", "format", "default", "description", "alias_of"],
];

function problem(value: unknown, schema: Schema, at: string): string | undefined {
  const strange = Object.keys(schema).find((word) => !KNOWN.includes(word));
  if (strange !== undefined) return `${at}: the schema says \`${strange}\`, which is not looked at here`;
  if (typeof schema.$ref === "string") {
    const name = schema.$ref.replace("#/$defs/", "");
    const found = DOCUMENT.$defs[name];
    return found ? problem(value, found, at) : `${at}: there is no ${name}`;
  }
  const any = (schema.oneOf ?? schema.anyOf) as Schema[] | undefined;
  if (any && !any.every((one) => one.required && Object.keys(one).length === 1)) {
    const problems = any.map((one) => problem(value, one, at));
    // Of lines the one of the same type says what is wrong.
    const near = problems.find((one) => !one?.includes("type: expected"));
    return problems.includes(undefined) ? undefined : (near ?? problems[0]);
  }
  if ("const" in schema && value !== schema.const) return `${at}: expected ${String(schema.const)}`;
  if (schema.enum && !schema.enum.includes(value)) return `${at}: ${String(value)} is none of ${schema.enum.join(", ")}`;
  const types = [schema.type ?? []].flat() as string[];
  if (types.length > 0 && !types.some((type) => isOf(type, value))) {
    return `${at}: ${JSON.stringify(value)} is no ${types.join(" or ")}`;
  }
  if (typeof schema.pattern === "string" && !new RegExp(schema.pattern).test(String(value))) return `${at}: ${String(value)}`;
  if (typeof schema.minimum === "number" && Number(value) < schema.minimum) return `${at}: ${String(value)} is too small`;
  if (Array.isArray(value)) {
    const { items } = schema;
    return items && first(value.map((one, place) => problem(one, items, `${at}[${place}]`)));
  }
  return typeof value === "object" && value !== null ? members(value as Record<string, unknown>, schema, at) : undefined;
}

function members(value: Record<string, unknown>, schema: Schema, at: string): string | undefined {
  const missing = schema.required?.find((name) => !(name in value));
  if (missing !== undefined) return `${at}: \`${missing}\` is missing`;
  const others = schema.additionalProperties as Schema | undefined;
  // What may be anything has any members.
  if (!schema.properties && !others) return undefined;
  const problems = Object.entries(value).map(([name, one]) => {
    const says = schema.properties?.[name] ?? others;
    return says ? problem(one, says, `${at}.${name}`) : `${at}: \`${name}\` is not in the schema`;
  });
  return first(problems);
}

function first(problems: (string | undefined)[]): string | undefined {
  return problems.find((one) => one !== undefined);
}

function isOf(type: string, value: unknown): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}
