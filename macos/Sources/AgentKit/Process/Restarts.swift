// When a child that died may be started again.
//
// Owns the schedule and the breaker. Must not know processes or clocks: times are seconds of one
// that doesn't jump.

public struct Restarts: Sendable, Equatable {
  /// The first pause; each next one is twice as long, up to `most`.
  public var first = 0.5
  public var most = 60.0
  /// Who lived so long is healthy: the pauses begin anew.
  public var healthyAfter = 60.0
  /// So many deaths within `window` break it, for `brokenFor`.
  public var deaths = 5
  public var window = 180.0
  public var brokenFor = 600.0

  private var recent: [Double] = []
  private var inARow = 0
  private var brokenSince: Double?
  /// Deaths in all.
  public private(set) var count = 0

  public init() {}

  /// A child is dead, after it lived so long.
  public mutating func died(at now: Double, after lived: Double) {
    count += 1
    if lived >= healthyAfter {
      inARow = 0
      recent = []
    }
    inARow += 1
    recent = recent.filter { now - $0 < window } + [now]
    if recent.count >= deaths { brokenSince = now }
  }

  /// How long from now nobody starts one.
  public func pause(at now: Double) -> Double {
    guard inARow > 0, let last = recent.last else { return 0 }
    var pause = first
    for _ in 1..<max(inARow, 1) where pause < most { pause *= 2 }
    return max(0, last + min(pause, most) - now)
  }

  /// Is nothing started any more? When the time is over, one is tried.
  public func isBroken(at now: Double) -> Bool {
    guard let brokenSince else { return false }
    return now - brokenSince < brokenFor
  }

  /// Somebody mended the cause.
  public mutating func forget() {
    recent = []
    inARow = 0
    brokenSince = nil
  }
}
