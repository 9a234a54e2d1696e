// A value behind a lock.
//
// Owns the lock. Must not be held while anything waits.

import Foundation

final class Guarded<Value>: @unchecked Sendable {
  private let lock = NSLock()
  private var value: Value

  init(_ value: Value) {
    self.value = value
  }

  func with<Result>(_ use: (inout Value) throws -> Result) rethrows -> Result {
    lock.lock()
    defer { lock.unlock() }
    return try use(&value)
  }
}
