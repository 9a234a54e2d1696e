// One thread that reads one descriptor to its end.
//
// Owns the thread, the descriptor, and waking it when nobody wants more. Must not know what is read.

import Foundation

final class Reader: Sendable {
  private let wake: Descriptor
  private let done = Guarded(false)

  /// Takes over the descriptor, and closes it in any case. Reads until the end, or until `stop`. `take` gets each portion, then `end` is called once.
  /// Both run on the reader's own thread: while `take` waits, nothing is read.
  init(
    _ descriptor: Descriptor, take: @escaping @Sendable (UnsafeRawBufferPointer) -> Void,
    end: @escaping @Sendable () -> Void
  ) throws {
    let alarm: (reading: Descriptor, writing: Descriptor)
    do {
      alarm = try Descriptor.pipe()
    } catch {
      descriptor.close()
      throw error
    }
    wake = alarm.writing
    let thread = Thread { [self] in
      Self.run(descriptor, until: alarm.reading, take: take)
      done.with {
        $0 = true
        wake.close()
      }
      descriptor.close()
      alarm.reading.close()
      end()
    }
    thread.stackSize = 256 * 1024
    thread.name = "agentkit-reader"
    thread.start()
  }

  /// Ends reading, though whoever writes goes on.
  func stop() {
    done.with { isDone in
      guard !isDone else { return }
      var byte: UInt8 = 0
      _ = write(wake.number, &byte, 1)
    }
  }

  private static func run(
    _ descriptor: Descriptor, until alarm: Descriptor,
    take: @Sendable (UnsafeRawBufferPointer) -> Void
  ) {
    let size = 64 * 1024
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 16)
    defer { buffer.deallocate() }
    while true {
      var waits = [
        pollfd(fd: descriptor.number, events: Int16(POLLIN), revents: 0),
        pollfd(fd: alarm.number, events: Int16(POLLIN), revents: 0),
      ]
      if poll(&waits, 2, -1) < 0 {
        if errno == EINTR { continue }
        return
      }
      if waits[1].revents != 0 { return }
      let count = read(descriptor.number, buffer.baseAddress, size)
      if count > 0 {
        take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
      } else if count == 0 || errno != EINTR {
        return
      }
    }
  }
}
