// Ways to wait: for some time, for one thing within some time, and until somebody leaves.
//
// Must not know what is waited for.

/** Nothing came within the time. */
export class TimedOut extends Error {}

/** Waits; rejects with the signal's reason as soon as that is there. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Waiter<void>().wait(ms, signal).catch((error: unknown) => {
    if (!(error instanceof TimedOut)) throw error;
  });
}

/** Who waits for one thing, which somebody else has. */
export class Waiter<T> {
  #settle: { resolve: (value: T) => void; reject: (error: unknown) => void } | undefined;

  /** It is there, for whoever waits. */
  resolve(value: T): void {
    this.#settle?.resolve(value);
  }

  reject(error: unknown): void {
    this.#settle?.reject(error);
  }

  /** Rejects with `TimedOut`, or with the signal's reason; nothing is lost then. */
  async wait(ms: number, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    let timer: NodeJS.Timeout | undefined;
    let leave: (() => void) | undefined;
    try {
      return await new Promise<T>((resolve, reject) => {
        this.#settle = { resolve, reject };
        timer = setTimeout(() => reject(new TimedOut()), Math.max(ms, 0));
        leave = () => reject(signal?.reason);
        signal?.addEventListener("abort", leave);
      });
    } finally {
      this.#settle = undefined;
      clearTimeout(timer);
      if (leave) signal?.removeEventListener("abort", leave);
    }
  }
}
