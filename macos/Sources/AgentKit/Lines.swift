// Lines as they come, for `for try await`.
//
// Owns that the reader's cancellation is always heard. An `AsyncThrowingStream` of either making
// doesn't serve: one ends without a word when it is cancelled between two lines, the other keeps
// every line of a slow reader, and can't tell who is cancelled from who has left.

public struct Lines: AsyncSequence, Sendable {
  public typealias Element = Line

  let take: @Sendable () async throws -> Line?

  public struct AsyncIterator: AsyncIteratorProtocol {
    let take: @Sendable () async throws -> Line?

    public mutating func next() async throws -> Line? {
      try await take()
    }
  }

  public func makeAsyncIterator() -> AsyncIterator {
    AsyncIterator(take: take)
  }
}
